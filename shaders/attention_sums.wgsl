// A thread's sums {SET}_ci: rows i, four floats of chunk c.
//! unroll c CHUNKS
//! unroll i RT
var {SET}_{c}{i} = vec4f(0.0);
//! end
//! end
