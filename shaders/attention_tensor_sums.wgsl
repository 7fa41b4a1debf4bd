// {SET}_d: FRAGMENT of a head's width each.
//! unroll d DEPTHS
//! if COOPERATIVE
var {SET}_{d} = coop_mat{FRAGMENT}x{FRAGMENT}<f32, C>();
//! else
var {SET}_{d} = Result();
//! end
//! end
