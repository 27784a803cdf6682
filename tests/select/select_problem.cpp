// SPDX-License-Identifier: Apache-2.0
#include "tests/select/select_problem.hpp"

#include "src/select/files/tensor_output.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace vocabpipe::testing {

namespace {

// Written anew from subset.py, so that the library's own functions are tested with it.
uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
uint64_t h(uint64_t seed, uint64_t a, uint64_t b) {
    return mix(mix(mix(seed) ^ a) ^ b);
}

int64_t root(int64_t x) {
    auto r = static_cast<int64_t>(std::sqrt(static_cast<double>(x)));
    while (r * r > x) --r;
    while ((r + 1) * (r + 1) <= x) ++r;
    return r;
}

}  // namespace

std::string SelectProblem::text() const {
    std::string text;
    for (size_t v = 0; v < utility.size(); ++v) {
        text += "u " + std::to_string(v) + " " + std::to_string(utility[v]) + "\n";
    }
    for (const auto& [a, b, s] : edges) {
        text += "e " + std::to_string(a) + " " + std::to_string(b) + " " + std::to_string(s) + "\n";
    }
    return text;
}

int64_t SelectProblem::value(const std::vector<int64_t>& set) const {
    std::vector<bool> in(utility.size());
    int64_t sum = 0;
    for (const int64_t v : set) {
        in[static_cast<size_t>(v)] = true;
        sum += objective.alpha * utility[static_cast<size_t>(v)];
    }
    for (const auto& [a, b, s] : edges) {
        if (in[static_cast<size_t>(a)] && in[static_cast<size_t>(b)]) sum -= objective.beta * s;
    }
    return sum;
}

SelectProblem clustered_problem(uint64_t seed, int64_t n, int64_t dim, int64_t clusters,
                                int64_t neighbours, PairwiseObjective objective) {
    std::vector<std::vector<int64_t>> points;
    for (int64_t i = 0; i < n; ++i) {
        const uint64_t c = h(seed, 1, static_cast<uint64_t>(i)) % static_cast<uint64_t>(clusters);
        std::vector<int64_t>& point = points.emplace_back();
        for (int64_t j = 0; j < dim; ++j) {
            const auto at = static_cast<uint64_t>(i * dim + j);
            point.push_back(static_cast<int64_t>(
                (h(seed, 2, c * static_cast<uint64_t>(dim) + static_cast<uint64_t>(j)) >> 52) +
                (h(seed, 3, at) >> 54) + (h(seed, 4, at) >> 54) - 1024));
        }
    }
    std::map<std::pair<int64_t, int64_t>, int64_t> found;
    for (int64_t i = 0; i < n; ++i) {
        std::vector<std::pair<int64_t, int64_t>> others;
        for (int64_t j = 0; j < n; ++j) {
            if (j == i) continue;
            int64_t squares = 0;
            for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
                const int64_t apart =
                    points[static_cast<size_t>(i)][d] - points[static_cast<size_t>(j)][d];
                squares += apart * apart;
            }
            others.emplace_back(squares, j);
        }
        std::ranges::partial_sort(others, others.begin() + neighbours);
        for (int64_t k = 0; k < neighbours; ++k) {
            const auto [squares, j] = others[static_cast<size_t>(k)];
            found[{std::min(i, j), std::max(i, j)}] = squares;
        }
    }
    SelectProblem problem{.objective = objective};
    for (const auto& [ends, squares] : found) {
        problem.edges.push_back(
            {ends.first, ends.second, (int64_t{1} << 20) * 1024 / (1024 + root(squares))});
    }
    for (int64_t i = 0; i < n; ++i) {
        problem.utility.push_back(static_cast<int32_t>(h(seed, 5, static_cast<uint64_t>(i)) >> 44));
    }
    return problem;
}

SelectProblem random_problem(uint64_t seed, int64_t n, int64_t degree, int32_t most_utility,
                             int32_t most_similarity) {
    SelectProblem problem;
    std::map<std::pair<int64_t, int64_t>, int64_t> found;
    for (int64_t v = 0; v < n; ++v) {
        const auto id = static_cast<uint64_t>(v);
        problem.utility.push_back(
            static_cast<int32_t>(h(seed, 300, id) % (static_cast<uint64_t>(most_utility) + 1)));
        for (int64_t t = 0; t < degree; ++t) {
            const auto w = static_cast<int64_t>(h(seed, 100 + static_cast<uint64_t>(t), id) %
                                                static_cast<uint64_t>(n));
            if (w == v) continue;
            const std::pair ends{std::min(v, w), std::max(v, w)};
            found[ends] = static_cast<int64_t>(
                h(seed, 200, static_cast<uint64_t>(ends.first * n + ends.second)) %
                (static_cast<uint64_t>(most_similarity) + 1));
        }
    }
    for (const auto& [ends, s] : found) problem.edges.push_back({ends.first, ends.second, s});
    return problem;
}

Corpus corpus_of(const SelectProblem& problem) {
    return {.data = "test", .seq_length = 8, .samples = problem.size()};
}

void write_graph(Communicator& world, const std::string& path, const SelectProblem& problem,
                 int64_t most_narrow_nodes) {
    std::vector<std::vector<std::pair<int64_t, int32_t>>> rows(problem.utility.size());
    for (const auto& [a, b, s] : problem.edges) {
        rows[static_cast<size_t>(a)].emplace_back(b, static_cast<int32_t>(s));
        rows[static_cast<size_t>(b)].emplace_back(a, static_cast<int32_t>(s));
    }
    std::vector<int64_t> begins{0};
    std::vector<int64_t> neighbours;
    std::vector<int32_t> similarities;
    for (auto& row : rows) {
        std::ranges::sort(row);
        for (const auto& [neighbour, s] : row) {
            neighbours.push_back(neighbour);
            similarities.push_back(s);
        }
        begins.push_back(std::ssize(neighbours));
    }
    GraphOutput output(world, path, corpus_of(problem), begins.back(), {}, most_narrow_nodes);
    if (world.rank() == 0) {
        output.write_row_begin(0, begins);
        output.write_entries(0, neighbours, similarities);
    }
    output.publish();
}

void write_utility(Communicator& world, const std::string& path, const SelectProblem& problem) {
    std::map<std::string, std::string> metadata{{"format", "vocabpipe scores 1"},
                                                {"utility.kind", "margin"}};
    corpus_of(problem).write_to(metadata);
    TensorOutput output(world, path,
                        {{.name = "utility", .type = StoredType::I32, .shape = {problem.size()}}},
                        metadata);
    if (world.rank() == 0) output.write<int32_t>("utility", 0, std::span(problem.utility));
    output.publish();
}

std::vector<int64_t> all_with(Communicator& world, const SelectionState& state, Decision decision) {
    std::vector<int64_t> mine;
    for (int64_t v = state.first(); v < state.last(); ++v) {
        if (state.decision(v) == decision) mine.push_back(v);
    }
    std::vector<int64_t> all;
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) {
        const size_t before = all.size();
        all.resize(before + bytes.size() / sizeof(int64_t));
        if (!bytes.empty()) std::memcpy(all.data() + before, bytes.data(), bytes.size());
    }
    return all;
}

std::string lines_of(const std::vector<int64_t>& set) {
    std::string text;
    for (const int64_t v : set) text += std::to_string(v) + "\n";
    return text;
}

}  // namespace vocabpipe::testing
