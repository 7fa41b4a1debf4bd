// {SET} to {TO}, through floats: row `first_row` + i of the head that begins at element {FIRST}, rows {STEP} elements apart.
workgroupBarrier();
//! unroll d DEPTHS
{
    let to = own * STRIDE_O + {d}u * FRAGMENT / 4u;
//! if EMULATE
    emulated_store({SET}_{d}, to, STRIDE_O, within);
//! end
//! if COOPERATIVE
    coopStoreT({SET}_{d}, &floats[to * UNIT_S], STRIDE_O * UNIT_S);
//! end
//! if !EMULATE && !COOPERATIVE
    subgroupMatrixStore<row_major>(&floats, to * UNIT_S, {SET}_{d}, STRIDE_O * UNIT_S);
//! end
}
//! end
workgroupBarrier();
for (var i = within; i < FRAGMENT * VECTORS_D; i += SUBGROUP) {
    let line = own + i / VECTORS_D;
    let at = line * STRIDE_O + i % VECTORS_D * 2u;
    if (first_row + line < sizes.T) {
        {TO}[({FIRST} + (first_row + line) * {STEP}) / 8u + i % VECTORS_D] = packed(four(at), four(at + 1u));
    }
}
