// Four floats of a row of {FROM}, zeros past its ends. `first` is the element where row 0 of this head begins, `stride` the
// elements between rows.
fn {FROM}_vector(first: u32, stride: u32, row: u32, d: u32) -> vec4f {
    var value = vec4f(0.0);
    if (row < sizes.T && d < D) {
        let at = first + row * stride + d;
//! if VECTORS
        value = vec4f({FROM}[at / 4u]);
//! else
        value.x = f32({FROM}[at]);
        if (d + 1u < D) { value.y = f32({FROM}[at + 1u]); }
        if (d + 2u < D) { value.z = f32({FROM}[at + 2u]); }
        if (d + 3u < D) { value.w = f32({FROM}[at + 3u]); }
//! end
    }
    return value;
}
