// Rows of {FROM} into the streamed tiles. BATCH: all loads of a thread before its first store, which hides their latency but
// costs registers (in the backward passes more than it gains).
fn {FROM}_to_x(first: u32, stride: u32, row: u32, chunk: u32, lane: u32) {
//! if BATCH
//! unroll n LOADS_X
    let i{n} = lane + {n}u * THREADS;
    let value{n} = {FROM}_vector(first, stride, row + i{n} / WIDE, chunk * CHUNK + i{n} % WIDE * 4u);
//! end
//! unroll n LOADS_X
    if (i{n} < ROWS * WIDE) {
        tile_x[i{n} / WIDE][i{n} % WIDE] = value{n};
    }
//! end
//! else
    for (var i = lane; i < ROWS * WIDE; i += THREADS) {
        tile_x[i / WIDE][i % WIDE] = {FROM}_vector(first, stride, row + i / WIDE, chunk * CHUNK + i % WIDE * 4u);
    }
//! end
}

fn {FROM}_to_y(first: u32, stride: u32, row: u32, chunk: u32, lane: u32) {
//! if BATCH
//! unroll n LOADS_Y
    let i{n} = lane + {n}u * THREADS;
    let value{n} = {FROM}_vector(first, stride, row + i{n} / WIDE, chunk * CHUNK + i{n} % WIDE * 4u);
//! end
//! unroll n LOADS_Y
    if (i{n} < COLS * WIDE) {
        tile_y[i{n} / WIDE][i{n} % WIDE] = value{n};
    }
//! end
//! else
    for (var i = lane; i < COLS * WIDE; i += THREADS) {
        tile_y[i / WIDE][i % WIDE] = {FROM}_vector(first, stride, row + i / WIDE, chunk * CHUNK + i % WIDE * 4u);
    }
//! end
}
