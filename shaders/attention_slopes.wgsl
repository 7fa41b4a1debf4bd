// The gradients of the scores (rows keys, columns queries), times SCALE, into {TILE}.
//! unroll i RT
//! unroll q QUADS_C
{TILE}[ty + {i}u * TY][{q*TX}u + tx] = SCALE * vec4f(
//! unroll r 4
    s_{i}{4*q+r} * (g_{i}{4*q+r} - stats{4*q+r}.y),
//! end
);
//! end
//! end
