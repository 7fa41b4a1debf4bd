//! if PREFETCH
//! unroll n LOADS_Y
var {SET}_{n} = vec4f(0.0);
//! end
//! end
