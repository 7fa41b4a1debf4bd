// {COUNT} rows of {FROM} from row {ROW} into {TILE}, once for the whole walk.
for (var i = lane; i < {COUNT} * WIDE; i += THREADS) {
    {TILE}[i / WIDE][(i % WIDE) ^ ((i / WIDE) & TURN)] = {FROM}_vector({FIRST}, {STEP}, {ROW} + i / WIDE, i % WIDE * 4u);
}
