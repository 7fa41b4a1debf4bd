// Sums over the TX threads of a row; four rows a thread.
fn sum_over_row(value: vec4f, tx: u32, ty: u32) -> vec4f {
    workgroupBarrier();
    lanes[ty * TX + tx] = value;
    workgroupBarrier();
    var total = lanes[ty * TX];
    for (var t = 1u; t < TX; t++) {
        total += lanes[ty * TX + t];
    }
    return total;
}

fn max_over_row(value: vec4f, tx: u32, ty: u32) -> vec4f {
    workgroupBarrier();
    lanes[ty * TX + tx] = value;
    workgroupBarrier();
    var top = lanes[ty * TX];
    for (var t = 1u; t < TX; t++) {
        top = max(top, lanes[ty * TX + t]);
    }
    return top;
}
