// An editor of Python for cells: CodeMirror, as PyScript ships it, in a shadow root (there its style sheets need no exception from the
// page's security policy). Fetched when a lesson is first shown; until then, and where it cannot be had, a text area does.
const LIGHT = `:host { display: block; } .cm-editor { font-size: 14px; background: transparent; }
  .cm-scroller { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace !important; line-height: 1.5; }
  .cm-gutters { background: transparent !important; border: 0 !important; color: inherit !important; opacity: 0.65; }
  .cm-focused { outline: none !important; } .cm-activeLine, .cm-activeLineGutter { background: transparent !important; }
  .cm-focused .cm-activeLine { background: rgb(128 128 128 / 12%) !important; }
  @media (prefers-color-scheme: dark) { .cm-editor { color: #131313; filter: invert(1) hue-rotate(180deg); } }`;
let parts = null;
const load = () => (parts ??= import('./codemirror.mjs').catch(() => { parts = null; return null; }));

/** Put an editor into `place` in the stead of its text area; done(editor) with value(), set(text), line(number), focus(). */
export function mount(place, label, run, complete, done) {
  const area = place.querySelector('textarea');
  const plain = {
    value: () => area.value,
    set: (text) => { area.value = text; fit(area); },
    line: (number) => select(area, number),
    focus: () => area.focus(),
  };
  fit(area);
  area.addEventListener('input', () => fit(area));
  onRun(area, run);
  done(plain);
  load().then((made) => { if (made && area.isConnected && document.activeElement !== area) done(rich(made, place, area, label, run, complete)); });
}

function fit(area) { area.rows = Math.max(3, area.value.split('\n').length); }

function select(area, number) {
  const lines = area.value.split('\n');
  const start = lines.slice(0, number - 1).join('\n').length + (number > 1 ? 1 : 0);
  area.setSelectionRange(start, start + (lines[number - 1] ?? '').length);
}

/** Shift+Enter and Control+Enter run the cell. */
function onRun(target, run) {
  target.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.shiftKey || event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    event.stopPropagation();
    run();
  }, { capture: true });
}

function rich({ EditorView, basicSetup, EditorState, python, pythonLanguage }, place, area, label, run, complete) {
  const host = document.createElement('div');
  host.className = 'editor';
  const root = host.attachShadow({ mode: 'open' });
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(LIGHT);
  root.adoptedStyleSheets = [sheet];
  const offered = (context) => new Promise((resolve) => {
    const before = context.matchBefore(/[\w.]+/);
    if (!before && !context.explicit) { resolve(null); return; }
    const timer = setTimeout(() => resolve(null), 3000);
    complete(context.state.sliceDoc(0, context.pos), (start, json) => {
      clearTimeout(timer);
      resolve({ from: start, options: JSON.parse(json).map((name) => ({ label: name })), validFor: /^\w*$/ });
    });
  });
  area.replaceWith(host);
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc: area.value,
      extensions: [basicSetup, python(), pythonLanguage.data.of({ autocomplete: offered }),
        EditorView.contentAttributes.of({ 'aria-label': `${label}. Shift and Enter run it.` })],
    }),
  });
  onRun(host, run);
  return {
    value: () => view.state.doc.toString(),
    set: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    line: (number) => {
      if (number < 1 || number > view.state.doc.lines) return;
      const { from, to } = view.state.doc.line(number);
      view.dispatch({ selection: { anchor: from, head: to }, scrollIntoView: true });
    },
    focus: () => view.focus(),
  };
}

/** Draw an array as gray pixels: base64 of a byte a cell, 255 where it is not finite. */
export function paint(canvas, rows, columns, base64) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext('2d');
  const image = context.createImageData(columns, rows);
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  bytes.forEach((byte, at) => {
    const shade = dark ? byte : 254 - byte;
    image.data.set(byte === 255 ? [180, 60, 60, 255] : [shade, shade, shade, 255], 4 * at);
  });
  context.putImageData(image, 0, 0);
}

const SCRATCH = 'posttrainllm-scratch';
export function keptScratch() { try { return localStorage.getItem(SCRATCH) ?? ''; } catch { return ''; } }
export function keepScratch(text) { try { localStorage.setItem(SCRATCH, text); } catch { /* private windows keep nothing */ } }
