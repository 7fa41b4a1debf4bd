// What AdamW with smaller moments shares: four elements a thread, the step in single precision, and the chance by which a moment is
// rounded up (ops/adamw_bf16.py). `first` is the piece's first element in its record, m_first and v_first its first words.
// The kernel's file declares the bindings and Sizes.

// 32 bits out of 32, each depending on all (Chris Wellons, "lowbias32").
fn hashed(seed: vec4u) -> vec4u {
    var x = (seed ^ (seed >> vec4u(16u))) * 0x7feb352du;
    x = (x ^ (x >> vec4u(15u))) * 0x846ca68bu;
    return x ^ (x >> vec4u(16u));
}

// Of elements at … at + 3: the low 16 bits are m's, the high ones v's.
fn chances(at: u32) -> vec4u {
    let key = hashed(vec4u(bitcast<u32>(norm[0]))).x;
    return hashed(vec4u(0u, 1u, 2u, 3u) + (sizes.first + at + key));
}

// Whether the step is made. By the norm's bits: a compiler may take `norm == norm` for true.
fn goes() -> bool {
    let finite = (bitcast<u32>(norm[0]) & 0x7f800000u) != 0x7f800000u;
//! if GUARD
    return finite && state[2] == 0.0;
//! else
    return finite;
//! end
}

fn inside(at: u32) -> vec4<bool> {
    return vec4u(0u, 1u, 2u, 3u) + at < vec4u(sizes.count);
}

// Gradients of elements at … at + 3 as they enter the moments; 0 past the end.
fn gradient(at: u32) -> vec4f {
    let clip = recipe[5];
//! if SCALED
    let scale = state[3] * select(1.0, clip / norm[0], clip > 0.0 && norm[0] > clip);
//! else
    let scale = select(1.0, clip / norm[0], clip > 0.0 && norm[0] > clip);
//! end
//! if VECTORS
    return grad[at / 4u] * scale;
//! else
    var g = vec4f();
    for (var j = 0u; j < 4u; j++) {
        if (at + j < sizes.count) {
            g[j] = grad[at + j] * scale;
        }
    }
    return g;
//! end
}

fn step_weights(at: u32, new_m: vec4f, new_v: vec4f) {
    let lr = recipe[0];
    let keep = 1.0 - lr * recipe[4] * f32(sizes.decayed);
    let change = lr * (new_m * recipe[6]) / (sqrt(new_v * recipe[7]) + recipe[3]);
//! if VECTORS
    let stepped = param[at / 4u] * keep - change;
    param[at / 4u] = stepped;
//! if HALF
    halves[at / 4u] = Stored(stepped);
//! end
//! else
    for (var j = 0u; j < 4u; j++) {
        if (at + j < sizes.count) {
            let stepped = param[at + j] * keep - change[j];
            param[at + j] = stepped;
//! if HALF
            halves[at + j] = Stored(stepped);
//! end
        }
    }
//! end
}
