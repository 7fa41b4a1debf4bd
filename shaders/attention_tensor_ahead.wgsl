//! unroll n LOADS_Y
var {SET}_{n} = vec4u();
//! end
