"""The formulas as Triton kernels: a program owns a block of rows (or of columns) and walks over the other.

Letters are those of the formulas. Every argument `x` is a pointer to contiguous matrices and comes with `nx`, how many there
are: matrix number n % nx belongs to problem n, so that what a batch shares is stored once. In kernels that own columns all
tiles are transposed. A row beyond the last has l = inf, hence P = 0; a column beyond the last has S = -inf.
"""

import triton
import triton.language as tl

INFINITY = tl.constexpr(float("inf"))
COUNTS = ["nq", "nk", "nv", "nO", "nl", "nM", "nD", "nG", "nqt", "nkt", "nvt", "nlt", "nDt", "nGt"]


@triton.jit
def tile(x, matrix, at, length, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Rows `at` of a matrix, zero beyond its edges."""
    across = tl.arange(0, BLOCK)
    offsets = matrix.to(tl.int64) * length * WIDTH + at[:, None] * WIDTH + across[None, :]
    return tl.load(x + offsets, mask=(at < length)[:, None] & (across < WIDTH)[None, :], other=0.0)


@triton.jit
def put(x, matrix, at, length, value, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """Write rows `at` of a matrix."""
    across = tl.arange(0, BLOCK)
    offsets = matrix.to(tl.int64) * length * WIDTH + at[:, None] * WIDTH + across[None, :]
    tl.store(x + offsets, value.to(x.dtype.element_ty), mask=(at < length)[:, None] & (across < WIDTH)[None, :])


@triton.jit
def statistic(x, matrix, at, length, other):
    """One number per row."""
    return tl.load(x + matrix.to(tl.int64) * length + at, mask=at < length, other=other)


@triton.jit
def put_statistic(x, matrix, at, length, value):
    """Write one number per row."""
    tl.store(x + matrix.to(tl.int64) * length + at, value, mask=at < length)


@triton.jit
def outer(a, b, PRECISION: tl.constexpr):
    """`a b^T`."""
    return tl.dot(a, tl.trans(b), input_precision=PRECISION)


@triton.jit
def times(p, x, PRECISION: tl.constexpr):
    """`p x`, with p rounded to the precision of x."""
    return tl.dot(p.to(x.dtype), x, input_precision=PRECISION)


@triton.jit
def masked(S, n, i, j, L, W, B, inner, nB, sB, si, sj, CAUSAL: tl.constexpr, MASK: tl.constexpr):
    """Scores with the mask; i and j are the rows and columns, shaped to broadcast to the tile."""
    inside = (i < L) & (j < W)
    visible = inside
    if CAUSAL:
        visible = visible & (j <= i)
    if MASK != "none":
        at = B + ((n // inner) % nB).to(tl.int64) * sB + i.to(tl.int64) * si + j.to(tl.int64) * sj
        if MASK == "bool":
            visible = visible & (tl.load(at, mask=inside, other=0) != 0)
        else:
            S += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    return tl.where(visible, S, -INFINITY)


@triton.jit
def whole_or_seen(block, W, CAUSAL: tl.constexpr, ROWS: tl.constexpr):
    """How many columns a block of rows sees."""
    stop = W
    if CAUSAL:
        stop = tl.minimum(W, (block + 1) * ROWS)
    return stop


@triton.jit
def first_seeing(block, CAUSAL: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """First row, rounded down to a block, that sees a block of columns."""
    start = 0
    if CAUSAL:
        start = (block * COLUMNS) // ROWS * ROWS
    return start


@triton.jit(do_not_specialize=COUNTS)
def forward(
    q, nq, k, nk, v, nv, B, inner, nB, sB, si, sj, O, l, M, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`O = P V` with l and M, by the running maximum."""
    n = tl.program_id(0) // blocks
    block = blocks - 1 - tl.program_id(0) % blocks
    i = block * ROWS + tl.arange(0, ROWS)
    q_ = tile(q, n % nq, i, L, E, BE)
    top = tl.full([ROWS], -INFINITY, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, BV], tl.float32)
    for start in range(0, whole_or_seen(block, W, CAUSAL, ROWS), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        k_, v_ = tile(k, n % nk, j, W, E, BE), tile(v, n % nv, j, W, V, BV)
        S = scale * outer(q_, k_, PRECISION)
        S = masked(S, n, i[:, None], j[None, :], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        higher = tl.maximum(top, tl.max(S, 1))
        safe = tl.where(higher == -INFINITY, 0.0, higher)
        P = tl.exp(S - safe[:, None])
        shrink = tl.exp(top - safe)
        total = total * shrink + tl.sum(P, 1)
        out = out * shrink[:, None] + times(P, v_, PRECISION)
        top = higher
    empty = total == 0.0
    out = out / tl.where(empty, 1.0, total)[:, None]
    put(O, n, i, L, out, V, BV)
    put_statistic(l, n, i, L, tl.where(empty, INFINITY, tl.log(total)))
    put_statistic(M, n, i, L, tl.where(top == -INFINITY, 0.0, top))


@triton.jit(do_not_specialize=COUNTS)
def forward_tangent(
    q, nq, O, nO, l, nl, M, nM, qt, nqt, k, nk, v, nv, kt, nkt, vt, nvt, B, inner, nB, sB, si, sj, Ot, m, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`m = rowsum(P * St)` and `Ot = (P * St) V - m O + P Vt`."""
    n = tl.program_id(0) // blocks
    block = blocks - 1 - tl.program_id(0) % blocks
    i = block * ROWS + tl.arange(0, ROWS)
    q_, qt_ = tile(q, n % nq, i, L, E, BE), tile(qt, n % nqt, i, L, E, BE)
    M_ = statistic(M, n % nM, i, L, 0.0)
    l_ = statistic(l, n % nl, i, L, INFINITY)
    mean = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, BV], tl.float32)
    for start in range(0, whole_or_seen(block, W, CAUSAL, ROWS), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        k_, kt_ = tile(k, n % nk, j, W, E, BE), tile(kt, n % nkt, j, W, E, BE)
        v_, vt_ = tile(v, n % nv, j, W, V, BV), tile(vt, n % nvt, j, W, V, BV)
        S = scale * outer(q_, k_, PRECISION)
        S = masked(S, n, i[:, None], j[None, :], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[:, None] - l_[:, None])
        Y = P * (scale * (outer(qt_, k_, PRECISION) + outer(q_, kt_, PRECISION)))
        mean += tl.sum(Y, 1)
        out += times(Y, v_, PRECISION) + times(P, vt_, PRECISION)
    out -= mean[:, None] * tile(O, n % nO, i, L, V, BV).to(tl.float32)
    put(Ot, n, i, L, out, V, BV)
    put_statistic(m, n, i, L, mean)


@triton.jit(do_not_specialize=COUNTS)
def backward_rows(
    q, nq, l, nl, M, nM, D, nD, G, nG, k, nk, v, nv, B, inner, nB, sB, si, sj, dq, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`dQ = s dS K`, `dS = P * (G V^T - D)`."""
    n = tl.program_id(0) // blocks
    block = blocks - 1 - tl.program_id(0) % blocks
    i = block * ROWS + tl.arange(0, ROWS)
    q_, G_ = tile(q, n % nq, i, L, E, BE), tile(G, n % nG, i, L, V, BV)
    M_ = statistic(M, n % nM, i, L, 0.0)
    l_ = statistic(l, n % nl, i, L, INFINITY)
    D_ = statistic(D, n % nD, i, L, 0.0)
    out = tl.zeros([ROWS, BE], tl.float32)
    for start in range(0, whole_or_seen(block, W, CAUSAL, ROWS), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        k_, v_ = tile(k, n % nk, j, W, E, BE), tile(v, n % nv, j, W, V, BV)
        S = scale * outer(q_, k_, PRECISION)
        S = masked(S, n, i[:, None], j[None, :], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[:, None] - l_[:, None])
        dS = P * (outer(G_, v_, PRECISION) - D_[:, None])
        out += times(dS, k_, PRECISION)
    put(dq, n, i, L, scale * out, E, BE)


@triton.jit(do_not_specialize=COUNTS)
def backward_columns(
    q, nq, l, nl, M, nM, D, nD, G, nG, k, nk, v, nv, B, inner, nB, sB, si, sj, dk, dv, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`dK = s dS^T Q` and `dV = P^T G`."""
    n = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    k_, v_ = tile(k, n % nk, j, W, E, BE), tile(v, n % nv, j, W, V, BV)
    to_k = tl.zeros([COLUMNS, BE], tl.float32)
    to_v = tl.zeros([COLUMNS, BV], tl.float32)
    for start in range(first_seeing(block, CAUSAL, ROWS, COLUMNS), L, ROWS):
        i = start + tl.arange(0, ROWS)
        q_, G_ = tile(q, n % nq, i, L, E, BE), tile(G, n % nG, i, L, V, BV)
        M_ = statistic(M, n % nM, i, L, 0.0)
        l_ = statistic(l, n % nl, i, L, INFINITY)
        D_ = statistic(D, n % nD, i, L, 0.0)
        S = scale * outer(k_, q_, PRECISION)
        S = masked(S, n, i[None, :], j[:, None], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[None, :] - l_[None, :])
        dS = P * (outer(v_, G_, PRECISION) - D_[None, :])
        to_k += times(dS, q_, PRECISION)
        to_v += times(P, G_, PRECISION)
    put(dk, n, j, W, scale * to_k, E, BE)
    put(dv, n, j, W, to_v, V, BV)


@triton.jit(do_not_specialize=COUNTS)
def backward_tangent_rows(
    q, nq, l, nl, M, nM, D, nD, G, nG, qt, nqt, lt, nlt, Dt, nDt, Gt, nGt, k, nk, v, nv, kt, nkt, vt, nvt,
    B, inner, nB, sB, si, sj, dqt, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`dQt = s (dSt K + dS Kt)`, `dSt = Pt * (A - D) + P * (At - Dt)`, `Pt = P * (St - lt)`."""
    n = tl.program_id(0) // blocks
    block = blocks - 1 - tl.program_id(0) % blocks
    i = block * ROWS + tl.arange(0, ROWS)
    q_, qt_ = tile(q, n % nq, i, L, E, BE), tile(qt, n % nqt, i, L, E, BE)
    G_, Gt_ = tile(G, n % nG, i, L, V, BV), tile(Gt, n % nGt, i, L, V, BV)
    M_ = statistic(M, n % nM, i, L, 0.0)
    l_, lt_ = statistic(l, n % nl, i, L, INFINITY), statistic(lt, n % nlt, i, L, 0.0)
    D_, Dt_ = statistic(D, n % nD, i, L, 0.0), statistic(Dt, n % nDt, i, L, 0.0)
    out = tl.zeros([ROWS, BE], tl.float32)
    for start in range(0, whole_or_seen(block, W, CAUSAL, ROWS), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        k_, kt_ = tile(k, n % nk, j, W, E, BE), tile(kt, n % nkt, j, W, E, BE)
        v_, vt_ = tile(v, n % nv, j, W, V, BV), tile(vt, n % nvt, j, W, V, BV)
        S = scale * outer(q_, k_, PRECISION)
        S = masked(S, n, i[:, None], j[None, :], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[:, None] - l_[:, None])
        Pt = P * (scale * (outer(qt_, k_, PRECISION) + outer(q_, kt_, PRECISION)) - lt_[:, None])
        A = outer(G_, v_, PRECISION) - D_[:, None]
        At = outer(Gt_, v_, PRECISION) + outer(G_, vt_, PRECISION) - Dt_[:, None]
        out += times(Pt * A + P * At, k_, PRECISION) + times(P * A, kt_, PRECISION)
    put(dqt, n, i, L, scale * out, E, BE)


@triton.jit(do_not_specialize=COUNTS)
def backward_tangent_columns(
    q, nq, l, nl, M, nM, D, nD, G, nG, qt, nqt, lt, nlt, Dt, nDt, Gt, nGt, k, nk, v, nv, kt, nkt, vt, nvt,
    B, inner, nB, sB, si, sj, dkt, dvt, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`dKt = s (dSt^T Q + dS^T Qt)` and `dVt = Pt^T G + P^T Gt`."""
    n = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    k_, kt_ = tile(k, n % nk, j, W, E, BE), tile(kt, n % nkt, j, W, E, BE)
    v_, vt_ = tile(v, n % nv, j, W, V, BV), tile(vt, n % nvt, j, W, V, BV)
    to_k = tl.zeros([COLUMNS, BE], tl.float32)
    to_v = tl.zeros([COLUMNS, BV], tl.float32)
    for start in range(first_seeing(block, CAUSAL, ROWS, COLUMNS), L, ROWS):
        i = start + tl.arange(0, ROWS)
        q_, qt_ = tile(q, n % nq, i, L, E, BE), tile(qt, n % nqt, i, L, E, BE)
        G_, Gt_ = tile(G, n % nG, i, L, V, BV), tile(Gt, n % nGt, i, L, V, BV)
        M_ = statistic(M, n % nM, i, L, 0.0)
        l_, lt_ = statistic(l, n % nl, i, L, INFINITY), statistic(lt, n % nlt, i, L, 0.0)
        D_, Dt_ = statistic(D, n % nD, i, L, 0.0), statistic(Dt, n % nDt, i, L, 0.0)
        S = scale * outer(k_, q_, PRECISION)
        S = masked(S, n, i[None, :], j[:, None], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[None, :] - l_[None, :])
        Pt = P * (scale * (outer(k_, qt_, PRECISION) + outer(kt_, q_, PRECISION)) - lt_[None, :])
        A = outer(v_, G_, PRECISION) - D_[None, :]
        At = outer(v_, Gt_, PRECISION) + outer(vt_, G_, PRECISION) - Dt_[None, :]
        to_k += times(Pt * A + P * At, q_, PRECISION) + times(P * A, qt_, PRECISION)
        to_v += times(Pt, G_, PRECISION) + times(P, Gt_, PRECISION)
    put(dkt, n, j, W, scale * to_k, E, BE)
    put(dvt, n, j, W, to_v, V, BV)


@triton.jit(do_not_specialize=COUNTS)
def backward_cotangent_rows(
    q, nq, l, nl, M, nM, D, nD, G, nG, qt, nqt, k, nk, v, nv, kt, nkt, vt, nvt,
    B, inner, nB, sB, si, sj, gq, gl, gD, gG, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients for q, l, D and G of the contraction of (dQ, dK, dV) with (qt, kt, vt)."""
    n = tl.program_id(0) // blocks
    block = blocks - 1 - tl.program_id(0) % blocks
    i = block * ROWS + tl.arange(0, ROWS)
    q_, qt_ = tile(q, n % nq, i, L, E, BE), tile(qt, n % nqt, i, L, E, BE)
    G_ = tile(G, n % nG, i, L, V, BV)
    M_ = statistic(M, n % nM, i, L, 0.0)
    l_ = statistic(l, n % nl, i, L, INFINITY)
    D_ = statistic(D, n % nD, i, L, 0.0)
    to_q = tl.zeros([ROWS, BE], tl.float32)
    to_G = tl.zeros([ROWS, BV], tl.float32)
    to_l = tl.zeros([ROWS], tl.float32)
    to_D = tl.zeros([ROWS], tl.float32)
    for start in range(0, whole_or_seen(block, W, CAUSAL, ROWS), COLUMNS):
        j = start + tl.arange(0, COLUMNS)
        k_, kt_ = tile(k, n % nk, j, W, E, BE), tile(kt, n % nkt, j, W, E, BE)
        v_, vt_ = tile(v, n % nv, j, W, V, BV), tile(vt, n % nvt, j, W, V, BV)
        S = scale * outer(q_, k_, PRECISION)
        S = masked(S, n, i[:, None], j[None, :], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[:, None] - l_[:, None])
        A = outer(G_, v_, PRECISION) - D_[:, None]
        Y = P * (scale * (outer(qt_, k_, PRECISION) + outer(q_, kt_, PRECISION)))
        U = A * Y + P * outer(G_, vt_, PRECISION)
        to_q += times(U, k_, PRECISION) + times(P * A, kt_, PRECISION)
        to_G += times(Y, v_, PRECISION) + times(P, vt_, PRECISION)
        to_l -= tl.sum(U, 1)
        to_D -= tl.sum(Y, 1)
    put(gq, n, i, L, scale * to_q, E, BE)
    put_statistic(gl, n, i, L, to_l)
    put_statistic(gD, n, i, L, to_D)
    put(gG, n, i, L, to_G, V, BV)


@triton.jit(do_not_specialize=COUNTS)
def backward_cotangent_columns(
    q, nq, l, nl, M, nM, D, nD, G, nG, qt, nqt, k, nk, v, nv, kt, nkt, vt, nvt,
    B, inner, nB, sB, si, sj, gk, gv, L, W, blocks, scale,
    E: tl.constexpr, V: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, PRECISION: tl.constexpr,
    BE: tl.constexpr, BV: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The same for k and v."""
    n = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    j = block * COLUMNS + tl.arange(0, COLUMNS)
    k_, kt_ = tile(k, n % nk, j, W, E, BE), tile(kt, n % nkt, j, W, E, BE)
    v_, vt_ = tile(v, n % nv, j, W, V, BV), tile(vt, n % nvt, j, W, V, BV)
    to_k = tl.zeros([COLUMNS, BE], tl.float32)
    to_v = tl.zeros([COLUMNS, BV], tl.float32)
    for start in range(first_seeing(block, CAUSAL, ROWS, COLUMNS), L, ROWS):
        i = start + tl.arange(0, ROWS)
        q_, qt_ = tile(q, n % nq, i, L, E, BE), tile(qt, n % nqt, i, L, E, BE)
        G_ = tile(G, n % nG, i, L, V, BV)
        M_ = statistic(M, n % nM, i, L, 0.0)
        l_ = statistic(l, n % nl, i, L, INFINITY)
        D_ = statistic(D, n % nD, i, L, 0.0)
        S = scale * outer(k_, q_, PRECISION)
        S = masked(S, n, i[None, :], j[:, None], L, W, B, inner, nB, sB, si, sj, CAUSAL, MASK)
        P = tl.exp(S - M_[None, :] - l_[None, :])
        A = outer(v_, G_, PRECISION) - D_[None, :]
        Y = P * (scale * (outer(k_, qt_, PRECISION) + outer(kt_, q_, PRECISION)))
        U = A * Y + P * outer(vt_, G_, PRECISION)
        to_k += times(U, q_, PRECISION) + times(P * A, qt_, PRECISION)
        to_v += times(Y, G_, PRECISION)
    put(gk, n, j, W, scale * to_k, E, BE)
    put(gv, n, j, W, to_v, V, BV)


ROW_KERNELS = {
    "forward": forward,
    "forward_tangent": forward_tangent,
    "backward": backward_rows,
    "backward_tangent": backward_tangent_rows,
    "backward_cotangent": backward_cotangent_rows,
}
COLUMN_KERNELS = {
    "backward": backward_columns,
    "backward_tangent": backward_tangent_columns,
    "backward_cotangent": backward_cotangent_columns,
}
