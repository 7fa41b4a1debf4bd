// A thread's sums {SET}_ci: rows i, four floats of chunk c (or, where all of D is there, the vector own_vector + HOP·c).
//! unroll c CHUNKS*QUADS_D
//! unroll i RT
var {SET}_{c}{i} = vec4f(0.0);
//! end
//! end
