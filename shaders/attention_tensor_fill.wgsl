// {COUNT} rows of {FROM} from row {ROW} into halves at {TO}.
for (var i = lane; i < {COUNT} * VECTORS_D; i += THREADS) {
    keep({TO} + i / VECTORS_D * STRIDE_D + i % VECTORS_D, {FROM}_eight({FIRST}, {STEP}, {ROW} + i / VECTORS_D, i % VECTORS_D));
}
