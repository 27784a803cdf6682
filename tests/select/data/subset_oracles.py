#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reference implementation (plain Python, integers only) of pairwise-submodular subset selection:

  centralised greedy, exact and approximate bounding, multi-round distributed greedy,
  brute force (small n), after Boether et al., arXiv 2402.16442 / MLSys'25.

Every number that takes part in a decision is an integer, so an independent implementation can be
compared for equality, whatever its language, number of ranks or summation order:

  utility     u[v] >= 0            integer, fixed point (2**20 stands for 1.0)
  similarity  s[v,w] >= 0          integer, same fixed point, undirected, each edge counted ONCE
  alpha, beta                      small integers (9 and 1 stand for 0.9 and 0.1)

  F(S)      = alpha * sum_{v in S} u[v]  -  beta * sum_{ {v,w} in E, v,w in S } s[v,w]
  gain(v|S) = alpha * u[v]               -  beta * sum_{ w in N(v) & S } s[v,w]

Ties are always broken towards the smaller id.  `h(seed, a, b)` below is the only source of
randomness; it is a pure function, so sampling and partitioning need no generator state and do not
depend on how nodes are spread over ranks.

Run:  python3 subset_oracles.py            self-checks, then writes subset_oracles.json beside it
      python3 subset_oracles.py --check F  derives every result recorded in F again and compares
"""
import hashlib
import heapq
import itertools
import json
import os
import sys

M64 = (1 << 64) - 1
ONE = 1 << 20


# ---------------------------------------------------------------- hashing / sampling
def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


def h(seed, a, b):
    """64-bit hash of three unsigned 64-bit integers."""
    return splitmix64(splitmix64(splitmix64(seed & M64) ^ (a & M64)) ^ (b & M64))


def bernoulli(seed, v, w, num, den):
    """True with probability num/den; a fixed coin for the ordered pair (v, w)."""
    return (h(seed, v, w) >> 32) * den < num * (1 << 32)


def log2_of_step(i):
    """log2(1 + i / 256) in units of 2**-32, rounded down, one bit for each squaring."""
    bits, x = 0, (256 + i) << 55
    for _ in range(32):
        x = x * x >> 63
        bits = bits << 1 | x >> 64
        x >>= x >> 64
    return bits


LOG2 = [log2_of_step(i) for i in range(256)] + [1 << 32]


def exponential(random):
    """-log2(random / 2**64) in units of 2**-32; straight lines between 256 steps from 2**i to 2**(i+1)."""
    random |= 1
    whole = random.bit_length() - 1
    position = ((random << (63 - whole)) - (1 << 63)) >> 23     # 0 to 2**40: 256 steps of 2**32
    step, rest = position >> 32, position & 0xFFFFFFFF
    return ((64 - whole) << 32) - LOG2[step] - ((LOG2[step + 1] - LOG2[step]) * rest >> 32)


# ---------------------------------------------------------------- problem
class Problem:
    """n nodes, utilities, undirected weighted edges; adjacency sorted by id."""

    def __init__(self, u, edges, alpha, beta):
        self.u = list(u)
        self.n = len(self.u)
        self.alpha, self.beta = alpha, beta
        self.edges = sorted((min(a, b), max(a, b), s) for a, b, s in edges)
        assert len({(a, b) for a, b, _ in self.edges}) == len(self.edges), "edge given twice"
        assert all(a != b and s >= 0 for a, b, s in self.edges)
        self.adj = [[] for _ in range(self.n)]
        for a, b, s in self.edges:
            self.adj[a].append((b, s))
            self.adj[b].append((a, s))
        for row in self.adj:
            row.sort()

    def objective(self, S):
        S = set(S)
        return (self.alpha * sum(self.u[v] for v in S)
                - self.beta * sum(s for a, b, s in self.edges if a in S and b in S))

    def gain(self, v, S):
        return self.alpha * self.u[v] - self.beta * sum(s for w, s in self.adj[v] if w in S)

    def digest(self):
        """sha256 over 'u <v> <u>' and 'e <a> <b> <s>' lines, ascending; pins a generated graph."""
        d = hashlib.sha256()
        for v, x in enumerate(self.u):
            d.update(b"u %d %d\n" % (v, x))
        for a, b, s in self.edges:
            d.update(b"e %d %d %d\n" % (a, b, s))
        return d.hexdigest()


def set_digest(S):
    return hashlib.sha256(b"".join(b"%d\n" % v for v in sorted(S))).hexdigest()


# ---------------------------------------------------------------- centralised greedy (Alg. 1 / 2)
def greedy(P, V, k, base=None):
    """Pick min(k, |V|) nodes of V in greedy order.

    base: nodes already selected outside V; they lower the starting gains but are not returned.
    Edges to nodes outside V and base are ignored (that is what a partition sees).
    Lazy heap: gains only fall, so a popped entry that is out of date is simply pushed back.
    """
    V = set(V)
    base = base or set()
    cur = {v: P.gain(v, base) for v in V}
    heap = [(-g, v) for v, g in cur.items()]
    heapq.heapify(heap)
    out, done = [], set()
    while heap and len(out) < k:
        g, v = heapq.heappop(heap)
        if v in done:
            continue
        if -g != cur[v]:
            heapq.heappush(heap, (-cur[v], v))
            continue
        done.add(v)
        out.append(v)
        for w, s in P.adj[v]:
            if w in V and w not in done:
                cur[w] -= P.beta * s
    return out


def greedy_naive(P, V, k):
    """O(n k deg) textbook greedy, to check the heap version."""
    S, V = [], set(V)
    while V and len(S) < k:
        inS = set(S)
        v = max(V, key=lambda x: (P.gain(x, inS), -x))
        S.append(v)
        V.discard(v)
    return S


def brute_force(P, k):
    """Value of the optimum and all optimal sets."""
    best, sets = None, []
    for S in itertools.combinations(range(P.n), k):
        f = P.objective(S)
        if best is None or f > best:
            best, sets = f, [list(S)]
        elif f == best:
            sets.append(list(S))
    return best, sets


# ---------------------------------------------------------------- bounding (Alg. 3, 4, 5)
def kth_largest(values, k):
    return sorted(values, reverse=True)[k - 1]


class Bounding:
    """State: V unassigned, S selected, the rest discarded.

    U_max(v) = alpha u - beta * sum over selected neighbours
    U_low(v) = U_max(v) - beta * sum over unassigned neighbours that are *counted*
      exact      counts all of them                      (U_low = U_min, Def. 4.1)
      bernoulli  counts w iff the fixed coin of (v,w) is up (Def. 4.5, setting of Theorem 4.6)
      weighted   counts as many as quota, in the order of (exponential(h(seed,v,w)) << 25) // s and s:
                 drawn one after the other with chances in proportion to the similarities
      quota      counts the first max(0, ceil(p deg) - |N & S|) unassigned neighbours in the order
                 of h(seed,v,w): 'only sample if the number of neighbours in S is too small'
    Values are times alpha with respect to the paper's U (same order, integer).
    """

    def __init__(self, P, k, mode="exact", num=1, den=1, seed=0):
        self.P, self.k, self.mode, self.num, self.den, self.seed = P, k, mode, num, den, seed
        self.V, self.S = set(range(P.n)), set()
        self.trace = []
        self.status_changes = 0

    def u_max(self, v):
        return self.P.gain(v, self.S)

    def u_low(self, v):
        P = self.P
        un = [(w, s) for w, s in P.adj[v] if w in self.V]
        if self.mode == "exact":
            t = sum(s for _, s in un)
        elif self.mode == "bernoulli":
            t = sum(s for w, s in un if bernoulli(self.seed, v, w, self.num, self.den))
        elif self.mode == "quota":
            deg = len(P.adj[v])
            q = -(-self.num * deg // self.den) - sum(1 for w, _ in P.adj[v] if w in self.S)
            un.sort(key=lambda e: (h(self.seed, v, e[0]), e[0]))
            t = sum(s for _, s in un[:max(0, q)])
        elif self.mode == "weighted":
            deg = len(P.adj[v])
            q = -(-self.num * deg // self.den) - sum(1 for w, _ in P.adj[v] if w in self.S)
            un.sort(key=lambda e: ((exponential(h(self.seed, v, e[0])) << 25) // e[1]
                                   if e[1] else M64, e[1]))
            t = sum(s for _, s in un[:max(0, q)])
        else:
            raise ValueError(self.mode)
        return self.u_max(v) - P.beta * t

    def shrink(self):
        if self.k == 0 or len(self.V) <= self.k:
            return 0
        low = {v: self.u_low(v) for v in self.V}
        thr = kth_largest(low.values(), self.k)
        out = {v for v in self.V if self.u_max(v) < thr}
        self.V -= out
        self.status_changes += len(out)
        self.trace.append(["shrink", thr, len(out)])
        assert len(self.V) >= self.k          # U_low <= U_max: the k best by U_low always stay
        return len(out)

    def grow(self):
        if self.k == 0 or len(self.V) <= self.k:
            return 0
        thr = kth_largest([self.u_max(v) for v in self.V], self.k)
        inc = {v for v in self.V if self.u_low(v) > thr}
        assert len(inc) <= self.k - 1         # U_low > k-th U_max implies U_max > k-th U_max
        self.S |= inc
        self.V -= inc
        self.k -= len(inc)
        self.status_changes += len(inc)
        self.trace.append(["grow", thr, len(inc)])
        return len(inc)

    def run(self):
        while True:
            changed = 0
            while (c := self.shrink()):
                changed += c
            while (c := self.grow()):
                changed += c
            if not changed:
                return self


def complete(P, b):
    """Bounding result + centralised greedy on what is left (the paper's 'score' column)."""
    return sorted(b.S | set(greedy(P, b.V, b.k, base=b.S)))


# ---------------------------------------------------------------- distributed greedy (Alg. 6)
def delta(n0, r, rnd, k, gnum, gden):
    """Target size after round rnd (1-based): ceil(gamma (r-rnd)(n0-k)/r) + k, gamma = gnum/gden."""
    return -(-gnum * (r - rnd) * (n0 - k) // (gden * r)) + k


def partition(V, m, seed, rnd):
    """Exactly balanced random partition: order by (h(seed, rnd, v), v), cut into m equal slices.

    In MPI this is m-1 order statistics of the hash (splitters); afterwards partition(v) is a local
    look-up for *any* id, also a neighbour's, so edges inside a partition are found without a join.
    """
    order = sorted(V, key=lambda v: (h(seed, rnd, v), v))
    n = len(order)
    return [sorted(order[i * n // m:(i + 1) * n // m]) for i in range(m)]


def distributed_greedy(P, V, k, m, r, adaptive, seed, gnum=3, gden=4, base=None, first=None,
                       keep_partitions=False):
    """first: optional explicit partition of V for round 1 (worst-case tests)."""
    base = base or set()
    n0 = len(V)
    cap = -(-n0 // m)                                   # points one machine may hold
    cur, info = sorted(V), []
    for rnd in range(1, r + 1):
        target = delta(n0, r, rnd, k, gnum, gden)
        # The listing of Alg. 6 divides the round's *target* by cap; the memory argument in the text
        # and the published Fig. 4/14 need the round's *input*.
        parts_n = -(-len(cur) // cap) if adaptive else m
        parts = first if (rnd == 1 and first) else partition(cur, parts_n, seed, rnd)
        quota = -(-target // len(parts))
        kept = [greedy(P, p, quota, base) for p in parts]
        info.append({"round": rnd, "input": len(cur), "target": target, "partitions": len(parts),
                     "quota": quota, "kept": sum(map(len, kept)),
                     **({"parts": parts, "picked": kept} if keep_partitions else {})})
        cur = sorted(v for p in kept for v in p)
    if len(cur) > k:                                    # at most m extra, from the ceil
        cur = sorted(sorted(cur, key=lambda v: (h(seed, r + 1, v), v))[:k])
    return cur, info


# ---------------------------------------------------------------- generators (integers only)
def isqrt(x):
    if x < 2:
        return x
    y = 1 << ((x.bit_length() + 1) // 2)
    while True:
        z = (y + x // y) // 2
        if z >= y:
            return y
        y = z


def generate(seed, n, dim, clusters, knn, alpha, beta):
    """Clustered integer points; k-NN graph by exact squared distance, symmetrised by union.

    coordinate j of point i = centre(c, j) + noise,  c = h(seed,1,i) mod clusters,
      centre(c,j) = h(seed, 2, c*dim + j) >> 52         (0..4095)
      noise       = (h(seed, 3, i*dim + j) >> 54) + (h(seed, 4, i*dim + j) >> 54) - 1024
    similarity  = ONE * 1024 // (1024 + isqrt(d2))      (a decreasing integer function of distance)
    utility     = h(seed, 5, i) >> 44                   (0 .. ONE-1)
    """
    pts = []
    for i in range(n):
        c = h(seed, 1, i) % clusters
        pts.append([(h(seed, 2, c * dim + j) >> 52)
                    + (h(seed, 3, i * dim + j) >> 54) + (h(seed, 4, i * dim + j) >> 54) - 1024
                    for j in range(dim)])
    und = {}
    for i in range(n):
        pi = pts[i]
        d2 = [(sum((a - b) * (a - b) for a, b in zip(pi, pts[j])), j) for j in range(n) if j != i]
        for d, j in heapq.nsmallest(knn, d2):
            und[(min(i, j), max(i, j))] = d
    edges = [(a, b, ONE * 1024 // (1024 + isqrt(d))) for (a, b), d in und.items()]
    return Problem([h(seed, 5, i) >> 44 for i in range(n)], edges, alpha, beta)


def tiny(seed, n, deg, alpha, beta, umax=8, smax=8):
    """Random graph with few distinct values, so that ties are common (for the lemma checks)."""
    und = {}
    for v in range(n):
        for t in range(deg):
            w = h(seed, 100 + t, v) % n
            if w != v:
                und[(min(v, w), max(v, w))] = h(seed, 200, min(v, w) * n + max(v, w)) % (smax + 1)
    return Problem([h(seed, 300, v) % (umax + 1) for v in range(n)],
                   [(a, b, s) for (a, b), s in und.items()], alpha, beta)


# ---------------------------------------------------------------- self-checks
def self_check():
    stats = {"instances": 0, "decided_some": 0, "decided_all_nodes": 0}
    for seed in range(400):
        n = 6 + seed % 7
        P = tiny(seed, n, 1 + seed % 3, (9, 5, 1)[seed % 3], (1, 5, 2)[seed % 3])
        for k in (1, n // 3 or 1, n // 2, n - 1):
            stats["instances"] += 1
            assert greedy(P, range(n), k) == greedy_naive(P, range(n), k)
            opt, sets = brute_force(P, k)
            b = Bounding(P, k).run()
            # Lemmas 4.3 and 4.4: every optimal set keeps what was grown, has nothing shrunk away.
            for o in sets:
                assert b.S <= set(o) <= (b.S | b.V), (seed, k, b.S, b.V, o)
            assert len(b.S) + b.k == k and len(b.V) >= b.k
            stats["decided_some"] += bool(b.S or len(b.V) + len(b.S) < n)
            stats["decided_all_nodes"] += len(b.V) == b.k
            f = P.objective(complete(P, b))
            assert f <= opt
            # gains telescope to the objective
            S, tot = set(), 0
            for v in greedy(P, range(n), k):
                tot += P.gain(v, S)
                S.add(v)
            assert tot == P.objective(S)
            for mode in ("bernoulli", "quota", "weighted"):
                a = Bounding(P, k, mode, 3, 10, seed).run()
                assert len(a.S) + a.k == k and len(a.V) >= a.k
                assert a.status_changes <= n
            # p = 1 makes all approximate modes exact
            for mode in ("bernoulli", "quota", "weighted"):
                a = Bounding(P, k, mode, 1, 1, seed).run()
                assert (a.S, a.V, a.k) == (b.S, b.V, b.k)
            # one partition, one round = centralised
            assert distributed_greedy(P, range(n), k, 1, 1, False, seed)[0] == sorted(
                greedy(P, range(n), k))
            for ad in (False, True):
                out, info = distributed_greedy(P, range(n), k, 3, 3, ad, seed)
                assert len(out) == k and all(i["kept"] >= k for i in info), (seed, n, k, info)
                if ad:
                    cap = -(-n // 3)
                    for i in info:
                        assert -(-i["input"] // i["partitions"]) <= cap   # memory bound holds
    # greedy bound on monotone, non-negative instances (offset as in Appendix A)
    worst = 1.0
    for seed in range(60):
        P = tiny(seed + 9000, 10, 3, 9, 1)
        off = max(sum(s for _, s in P.adj[v]) for v in range(P.n))
        Q = Problem([u + off for u in P.u], P.edges, P.alpha, P.beta)
        for k in (2, 4, 6):
            opt, _ = brute_force(Q, k)
            worst = min(worst, Q.objective(greedy(Q, range(Q.n), k)) / opt)
    assert worst >= 1 - 1 / 2.718281828459045
    stats["worst_greedy_over_opt_monotone"] = round(worst, 6)
    return stats


# ---------------------------------------------------------------- oracles
def small_record(name, P, k, seed):
    n = P.n
    opt, sets = brute_force(P, k)
    g = greedy(P, range(n), k)
    rec = {"name": name, "n": n, "k": k, "alpha": P.alpha, "beta": P.beta,
           "u": P.u, "edges": [list(e) for e in P.edges], "seed": seed,
           "optimum": {"objective": opt, "sets": sets},
           "greedy": {"order": g, "objective": P.objective(g)}}

    def bounding(mode, num, den):
        b = Bounding(P, k, mode, num, den, seed).run()
        c = complete(P, b)
        return {"mode": mode, "p": [num, den], "selected": sorted(b.S),
                "unassigned": sorted(b.V), "k_left": b.k, "trace": b.trace,
                "completed": c, "objective": P.objective(c)}
    rec["bounding"] = [bounding("exact", 1, 1), bounding("bernoulli", 3, 10),
                       bounding("bernoulli", 7, 10), bounding("quota", 3, 10),
                       bounding("weighted", 3, 10)]
    rec["distributed"] = []
    for m, r, ad in ((2, 1, False), (2, 3, False), (3, 2, False), (3, 4, True)):
        out, info = distributed_greedy(P, range(n), k, m, r, ad, seed, keep_partitions=True)
        rec["distributed"].append({"partitions": m, "rounds": r, "adaptive": ad, "gamma": [3, 4],
                                   "selected": out, "objective": P.objective(out), "rounds_info": info})
    # worst case of the paper's Table 3: the greedy solution is one partition of the first round
    rest = partition([v for v in range(n) if v not in set(g)], 2, seed, 77)
    first = [sorted(g)] + rest
    out, info = distributed_greedy(P, range(n), k, 3, 3, True, seed, first=first,
                                   keep_partitions=True)
    rec["worst_case_first_partition"] = {"first": first, "partitions": 3, "rounds": 3,
                                         "adaptive": True, "selected": out,
                                         "objective": P.objective(out), "rounds_info": info}
    return rec


def generated_record(args, ks):
    P = generate(**args)
    degs = sorted(len(a) for a in P.adj)
    rec = {"generator": args, "graph_sha256": P.digest(), "edges": len(P.edges),
           "degree_min_mean_max": [degs[0], round(2 * len(P.edges) / P.n, 3), degs[-1]],
           "selections": []}
    for k in ks:
        g = greedy(P, range(P.n), k)
        e = {"k": k, "greedy": {"objective": P.objective(g), "first20": g[:20],
                                "set_sha256": set_digest(g)}, "bounding": [], "distributed": []}
        for mode, num, den in (("exact", 1, 1), ("bernoulli", 3, 10), ("bernoulli", 7, 10),
                               ("quota", 3, 10), ("weighted", 3, 10), ("weighted", 7, 10)):
            b = Bounding(P, k, mode, num, den, 1).run()
            c = complete(P, b)
            e["bounding"].append({"mode": mode, "p": [num, den], "seed": 1,
                                  "included": len(b.S), "excluded": P.n - len(b.S) - len(b.V),
                                  "k_left": b.k, "grow_calls": sum(t[0] == "grow" for t in b.trace),
                                  "shrink_calls": sum(t[0] == "shrink" for t in b.trace),
                                  "selected_sha256": set_digest(b.S),
                                  "unassigned_sha256": set_digest(b.V),
                                  "objective": P.objective(c), "set_sha256": set_digest(c)})
        for ad in (False, True):
            for m in (1, 2, 4, 8, 16):
                for r in (1, 2, 4, 8, 16):
                    out, info = distributed_greedy(P, range(P.n), k, m, r, ad, 1)
                    e["distributed"].append(
                        {"partitions": m, "rounds": r, "adaptive": ad, "seed": 1,
                         "parts_per_round": [i["partitions"] for i in info],
                         "objective": P.objective(out), "set_sha256": set_digest(out)})
        rec["selections"].append(e)
    return rec


def build():
    doc = {
        "what": "Oracles for pairwise-submodular subset selection; subset_oracles.py has every rule.",
        "conventions": {
            "objective": "alpha*sum u - beta*sum s over undirected edges inside S, integers",
            "ties": "smaller id first", "hash": "h(seed,a,b)=mix(mix(mix(seed)^a)^b), mix=splitmix64",
            "bernoulli": "(h(seed,v,w)>>32)*den < num*2^32",
            "partition": "sort by (h(seed,round,v),v); slice i is [i*n//m,(i+1)*n//m)",
            "subsample": "k smallest by (h(seed,rounds+1,v),v)",
            "adaptive": "partitions = ceil(|input of the round| / ceil(n/m))",
        },
        "hash_vectors": [[s, a, b, str(h(s, a, b))] for s, a, b in
                         ((0, 0, 0), (1, 2, 3), (7, 1 << 40, 12345), (M64, M64, M64))],
        "small": [
            small_record("clustered-16", generate(11, 16, 3, 3, 3, 9, 1), 6, 11),
            small_record("clustered-18-balanced", generate(12, 18, 3, 4, 3, 1, 1), 7, 12),
            small_record("ties-14", tiny(5, 14, 2, 9, 1), 5, 5),
            small_record("ties-12-k-large", tiny(6, 12, 2, 9, 1), 9, 6),
        ],
        "generated": [generated_record(dict(seed=2024, n=1500, dim=4, clusters=40, knn=10,
                                            alpha=9, beta=1), (150, 750))],
    }
    return doc


def rows(value, depth=3):
    """JSON with one line for whatever lies that deep: a case, a selection."""
    if depth == 0 or not isinstance(value, (dict, list)) or not value:
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, dict):
        inner = [json.dumps(k) + ":" + rows(v, depth - 1) for k, v in value.items()]
        return "{\n" + ",\n".join(inner) + "}"
    return "[\n" + ",\n".join(rows(v, depth - 1) for v in value) + "]"


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        with open(sys.argv[2]) as f:
            want = json.load(f)
        got = json.loads(json.dumps(build()))
        bad = [k for k in {**want, **got} if want.get(k) != got.get(k) and k != "self_check"]
        print("mismatch in " + ", ".join(bad) if bad else "all recorded results reproduced")
        return 1 if bad else 0
    stats = self_check()
    doc = build()
    doc["self_check"] = stats
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "subset_oracles.json")
    with open(path, "w") as f:
        f.write(rows(doc) + "\n")
    print(json.dumps(stats))
    for g in doc["generated"]:
        a = g["generator"]
        print("n=%d alpha=%d beta=%d edges=%d deg=%s" % (a["n"], a["alpha"], a["beta"], g["edges"],
                                                         g["degree_min_mean_max"]))
        for e in g["selections"]:
            top = e["greedy"]["objective"]
            low = min(d["objective"] for d in e["distributed"])
            print(" k=%d greedy=%d" % (e["k"], top))
            for b in e["bounding"]:
                print("  bound %-9s p=%s incl=%d excl=%d grow=%d shrink=%d ratio=%.4f" % (
                    b["mode"], b["p"], b["included"], b["excluded"], b["grow_calls"],
                    b["shrink_calls"], b["objective"] / top))
            for ad in (False, True):
                print("  adaptive=%s  rows partitions 1,2,4,8,16; columns rounds 1,2,4,8,16" % ad)
                for m in (1, 2, 4, 8, 16):
                    row = [d for d in e["distributed"] if d["adaptive"] == ad and d["partitions"] == m]
                    print("   " + " ".join("%6.1f" % (100 * (d["objective"] - low) / (top - low))
                                           for d in row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
