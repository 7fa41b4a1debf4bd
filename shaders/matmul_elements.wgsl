// What the matmuls' buffers and tiles are made of, and how a result leaves: shared by the plain and the tensor kernel.
//! if HALF
alias ScalarIn = f16;
alias VectorIn = vec4<f16>;
//! else
alias ScalarIn = f32;
alias VectorIn = vec4f;
//! end
//! if HALF && HALF_OUT
alias ScalarOut = f16;
alias VectorOut = vec4<f16>;
//! else
alias ScalarOut = f32;
alias VectorOut = vec4f;
//! end
//! if TENSOR
//! if TURN_A
alias ElementA = vec2u; // four halves
//! else
alias ElementA = vec4u; // eight
//! end
//! if TURN_B
alias ElementB = vec2u;
//! else
alias ElementB = vec4u;
//! end
//! else
//! if VECTORS_A
alias ElementA = VectorIn;
//! else
alias ElementA = ScalarIn;
//! end
//! if VECTORS_B
alias ElementB = VectorIn;
//! else
alias ElementB = ScalarIn;
//! end
//! end
//! if VECTORS_OUT
alias ElementOut = VectorOut;
alias ElementSum = vec4f;
const PER_ELEMENT = 4u; // floats of an element of out and of scratch
//! else
alias ElementOut = ScalarOut;
alias ElementSum = f32;
const PER_ELEMENT = 1u;
//! end
// One vector of the result to `column` … + 3 of a row, as far as the row goes.
fn store_out(row: u32, column: u32, value: vec4f) {
    if (row < {M} && column < {N}) {
//! if SPLIT
        let at = row * {N} + column;
//! else
        let at = row * {OUT_LINE} + column;
//! end
//! if VECTORS_OUT
        write_out(at / 4u, column / 4u, value);
//! else
        write_out(at, column, value.x);
        if (column + 1u < {N}) { write_out(at + 1u, column + 1u, value.y); }
        if (column + 2u < {N}) { write_out(at + 2u, column + 2u, value.z); }
        if (column + 3u < {N}) { write_out(at + 3u, column + 3u, value.w); }
//! end
    }
}

var<private> scratch_start: u32;

// Sum i of all chunks, in their order.
fn sum_of_chunks(i: u32) -> ElementSum {
    var sum = scratch[i];
    for (var chunk = 1u; chunk < sizes.chunks; chunk++) {
        sum += scratch[chunk * sizes.whole + i];
    }
    return sum;
}
