// The tail of the normal distribution beyond t >= 0, bell = exp(-t²/2): as ext/kernels/gelu_erf.cpp, whose coefficients these are.
const DENSITY = 0.3989422804014327;
fn tail(t: Element, bell: Element) -> Element {
    let u = 1.0 / (1.0 + 0.3 * t);
    let w = 2.0 * u - 1.0;
    let ww = w * w;
    let low = (0.22197062 + 0.16457948 * w) + (0.08654971 + 0.027760353 * w) * ww;
    let middle = (0.0018160199 - 0.0024235952 * w) + (-0.00056955364 + 0.00028074667 * w) * ww;
    let high = middle + (7.635826e-05 - 4.0138173e-05 * w) * (ww * ww);
    return (low + high * (ww * ww)) * u * bell;
}
// Φ(x) from the tail beyond |x|.
fn share(x: Element, tail_of_x: Element) -> Element {
    return select(1.0 - tail_of_x, tail_of_x, x < Element(0.0));
}
fn bell_of(t: Element) -> Element {
    return exp(-0.5 * t * t);
}
// Beyond 12.8 the tail is nothing beside x, and x² must not overflow.
fn bounded(x: Element) -> Element {
    return clamp(x, Element(-12.8), Element(12.8));
}
