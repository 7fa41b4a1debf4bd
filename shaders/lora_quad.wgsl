// Four ranks of a row of {W}.
fn quad_of_{W}(row: u32, quad: u32) -> vec4f {
//! if VECTORS_K
    return {W}[row * QUADS + quad];
//! else
    let k = quad * 4u;
    let at = row * sizes.K + k;
    var found = vec4f({W}[at], 0.0, 0.0, 0.0);
    if (k + 1u < sizes.K) { found.y = {W}[at + 1u]; }
    if (k + 2u < sizes.K) { found.z = {W}[at + 2u]; }
    if (k + 3u < sizes.K) { found.w = {W}[at + 3u]; }
    return found;
//! end
}
