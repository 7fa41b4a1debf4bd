// A thread's scores {SET}_ij: row i, column j.
//! unroll i RT
//! unroll j CT
var {SET}_{i}{j} = 0.0;
//! end
//! end
