// SPDX-License-Identifier: Apache-2.0
#include "src/select/graph_check.hpp"

#include "src/select/hash.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr uint64_t kSecondSum = 0x5851F42D4C957F2Du;
constexpr size_t kBuckets = size_t{1} << 16;

/// A number for the pair: of ids below 2^32 its own, of larger ones a hash.
uint64_t pair_of(int64_t node, int64_t neighbour) {
    const auto low = static_cast<uint64_t>(std::min(node, neighbour));
    const auto high = static_cast<uint64_t>(std::max(node, neighbour));
    return high <= UINT32_MAX ? (low << 32 | high) : splitmix64(low) + high;
}

/// The same for both entries of an edge.
uint64_t edge_hash(uint64_t pair, int32_t similarity) {
    return splitmix64(splitmix64(pair) ^ static_cast<uint32_t>(similarity));
}

size_t bucket_of(uint64_t pair) {
    return splitmix64(pair ^ kSecondSum) % kBuckets;
}

std::string entry_text(int64_t node, int64_t neighbour, int32_t similarity) {
    return "row " + std::to_string(node) + ": neighbour " + std::to_string(neighbour) +
           " has similarity " + std::to_string(similarity);
}

/// What is wrong with an entry; empty if the other row has it, too.
std::string what_is_wrong(GraphRows& rows, int64_t node, int64_t neighbour, int32_t similarity) {
    const GraphRow other = rows.at(neighbour);
    const auto found = std::ranges::lower_bound(other.neighbours, node);
    const std::string other_row = ", but row " + std::to_string(neighbour);
    const std::string remedy = "; every edge must stand in both rows with the same similarity";
    if (found == other.neighbours.end() || *found != node) {
        return entry_text(node, neighbour, similarity) + other_row + " does not name " +
               std::to_string(node) + remedy;
    }
    const int32_t there = other.similarities[static_cast<size_t>(found - other.neighbours.begin())];
    if (there == similarity) return {};
    return entry_text(node, neighbour, similarity) + other_row + " says " + std::to_string(there) +
           remedy;
}

/// Hashes edges into buckets, drops the buckets whose sums balance, and looks up the edges of the
/// others.
void name_first_asymmetric(Communicator& world, const GraphFile& graph, int64_t first,
                           int64_t last) {
    std::vector<uint64_t> sums(kBuckets);
    world.agree([&] {
        GraphRows rows(graph);
        for (int64_t v = first; v < last; ++v) {
            const GraphRow row = rows.at(v);
            for (size_t i = 0; i < row.degree(); ++i) {
                const uint64_t pair = pair_of(v, row.neighbours[i]);
                const uint64_t hash = edge_hash(pair, row.similarities[i]);
                sums[bucket_of(pair)] += v < row.neighbours[i] ? hash : 0 - hash;
            }
        }
    });
    add_over_ranks(world, sums);
    world.agree([&] {
        GraphRows rows(graph);
        GraphRows others(graph, uint64_t{1} << 13);
        for (int64_t v = first; v < last; ++v) {
            const GraphRow row = rows.at(v);
            for (size_t i = 0; i < row.degree(); ++i) {
                if (sums[bucket_of(pair_of(v, row.neighbours[i]))] == 0) continue;
                // A part has no other rows to look at.
                if (row.neighbours[i] < graph.first_row() || row.neighbours[i] >= graph.last_row())
                    continue;
                const std::string wrong =
                    what_is_wrong(others, v, row.neighbours[i], row.similarities[i]);
                if (!wrong.empty()) throw InputFileError(graph.path() + ": " + wrong);
            }
        }
    });
    throw AgreedError(ExitCode::input_file,
                      graph.path() +
                          ": some edge does not stand in both rows, or the file or its parts have "
                          "changed while they were read; make them again");
}

}  // namespace

void GraphCheck::add(const GraphRow& row) {
    longest_row_ = std::max(longest_row_, static_cast<int64_t>(row.degree()));
    isolated_ += row.degree() == 0 ? 1 : 0;
    for (size_t i = 0; i < row.degree(); ++i) {
        const int64_t neighbour = row.neighbours[i];
        const uint64_t hash = edge_hash(pair_of(row.node, neighbour), row.similarities[i]);
        const uint64_t second = splitmix64(hash ^ kSecondSum);
        if (row.node < neighbour) {
            fingerprint_ += splitmix64(second);
            balance_[0] += hash;
            balance_[1] += second;
        } else {
            balance_[0] -= hash;
            balance_[1] -= second;
        }
    }
}

void GraphCheck::finish(Communicator& world, const GraphFile& graph, int64_t first, int64_t last) {
    std::vector<uint64_t> sums{balance_[0], balance_[1], fingerprint_,
                               static_cast<uint64_t>(isolated_)};
    add_over_ranks(world, sums);
    balance_ = {sums[0], sums[1]};
    fingerprint_ = sums[2];
    isolated_ = static_cast<int64_t>(sums[3]);
    longest_row_ = largest_over_ranks(world, longest_row_);
    if (balance_ != std::array<uint64_t, 2>{}) name_first_asymmetric(world, graph, first, last);
}

GraphCheck check_graph(Communicator& world, const GraphFile& graph) {
    const Ownership owners(graph.nodes(), world.size());
    const int64_t first = owners.begin(world.rank());
    const int64_t last = owners.end(world.rank());
    GraphCheck check;
    world.agree([&] {
        GraphRows rows(graph);
        for (int64_t v = first; v < last; ++v) check.add(rows.at(v));
    });
    check.finish(world, graph, first, last);
    return check;
}

}  // namespace vocabpipe
