// dx of layernorm, row by row: LANES threads a row, THREADS/LANES rows a workgroup.
//! if VECTORS
fn total_of(value: Element) -> f32 { return dot(value, Element(1.0)); }
//! else
fn total_of(value: Element) -> f32 { return value; }
//! end
fn rows(group: u32, lane: u32) {
    let row = group * (THREADS / LANES) + lane / LANES;
    let inside = row < sizes.R;
    let start = row * sizes.width;
    let stop = select(0u, sizes.width, inside);
    let centre = mean[min(row, sizes.R - 1u)];
    let scale = rstd[min(row, sizes.R - 1u)];
    var g_sum = Element(0.0);
    var gx_sum = Element(0.0);
    for (var c = lane % LANES; c < stop; c += LANES) {
        let g = Element(dy[start + c]) * weight[c];
        g_sum += g;
        gx_sum += g * ((Element(x[start + c]) - centre) * scale);
    }
    let g_mean = reduce_sum(total_of(g_sum), lane) * sizes.share;
    let gx_mean = reduce_sum(total_of(gx_sum), lane) * sizes.share;
    for (var c = lane % LANES; c < stop; c += LANES) {
        let xhat = (Element(x[start + c]) - centre) * scale;
        let change = scale * (Element(dy[start + c]) * weight[c] - g_mean - xhat * gx_mean);
        if (sizes.accumulate != 0u) {
            dx[start + c] = Stored(Element(dx[start + c]) + change);
        } else {
            dx[start + c] = Stored(change);
        }
    }
}
