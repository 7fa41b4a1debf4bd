// Eight halves of a row of {FROM}, zeros past its end.
fn {FROM}_eight(first: u32, stride: u32, row: u32, vector: u32) -> vec4u {
    var value = vec4u();
    if (row < sizes.T) { value = {FROM}[(first + row * stride) / 8u + vector]; }
    return value;
}
