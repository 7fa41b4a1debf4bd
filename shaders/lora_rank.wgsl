// Ranks go by fours: QUADS of them, the last one filled up with zeros. {W} is an array with K numbers a row.
const QUADS = 1u;
const VECTORS_K = true; // K is a multiple of four
//! if VECTORS_K
alias Ranks = vec4f;
//! else
alias Ranks = f32;
//! end
