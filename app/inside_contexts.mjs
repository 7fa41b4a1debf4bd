// Where a feature fires, as lines of text: each token shaded by how much it does. A line is one stop of the Tab key; arrow keys, a pointer
// or a tap choose a token, and Python (ui/inside_feature.py) is asked what to say of it. A sentence below each line has the same in words.
import { moved, visible } from './inside.mjs';

const make = (tag, cls, words) => Object.assign(document.createElement(tag), { className: cls, textContent: words });

/** The three strongest places of a context in words. */
function words({ labels, activations }) {
  const best = labels.map((label, at) => [label, activations[at]]).filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]).slice(0, 3);
  return `Fires at ${best.map(([label, value]) => `“${visible(label)}” ${value.toFixed(2)}`).join(', ')}.`;
}

/** Fill a box with contexts [{labels, activations, at}]; ask(label, activation, pinned) once a token is pointed at. */
export function draw(id, contexts, most, ask) {
  const all = JSON.parse(contexts);
  document.getElementById(id).replaceChildren(...all.flatMap((context, number) => {
    const line = make('p', 'context', '');
    line.tabIndex = 0;
    line.setAttribute('role', 'group');
    line.setAttribute('aria-label', `Place ${number + 1} of ${all.length}: ${context.labels.join('')}`);
    line.append(...context.labels.map((label, at) => {
      const token = make('span', '', visible(label));
      token.style.setProperty('--share', (most > 0 ? Math.max(0, context.activations[at]) / most : 0).toFixed(3));
      return token;
    }));
    let here = context.at;
    const tell = (at, pinned) => {
      document.querySelector(`#${id} .here`)?.classList.remove('here');
      line.children[at].classList.add('here');
      if (pinned) here = at;
      ask(context.labels[at], context.activations[at], pinned);
    };
    const under = (event) => [...line.children].indexOf(event.target);
    line.onpointermove = (event) => { if (moved(event) && under(event) >= 0 && !event.target.classList.contains('here')) tell(under(event), false); };
    line.onclick = (event) => { if (under(event) >= 0) tell(under(event), true); };
    line.onfocus = () => { if (line.matches(':focus-visible')) tell(here, true); };
    line.onkeydown = (event) => {
      const last = line.children.length - 1;
      const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: last }[event.key];
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      tell(Math.max(0, Math.min(last, to)), true);
    };
    return [line, make('p', 'hint', words(context))];
  }));
}
