// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_graph.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace vocabpipe {

/// Options of write_neighbour_graph(), with the names and defaults of `vocabpipe select knn`.
struct NeighbourOptions {
    int64_t neighbours = 10;  ///< per sample, before edges are made symmetric; as in the paper
    /// Takes the mean of all embeddings from each before the cosines: hidden states of language
    /// models share a large common part. Default: embeddings as they are.
    bool centre = false;
    int threads = 1;      ///< OpenMP threads per rank; ranks x threads > cores is very slow
    uint64_t memory = 0;  ///< bytes per rank, checked before the work; default 0: not checked
    /// Called on every rank with a phase and its progress, total 0: unknown. May be empty.
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
};

/// Writes the graph in which two samples are neighbours if one of them is among the nearest of the
/// other by cosine, which is the weight of their edge, to `path`, and opens it. Cosines that are
/// not positive make no edge. Exact up to fp32 rounding, and the file has the same bytes for any
/// number of ranks and threads. `embeddings`: (samples, width) fp32, row-major, the same on every
/// rank, `width` at least 1. Collective: all ranks see the folder of `path`. Errors are an
/// AgreedError on every rank: with ExitCode::usage for an option out of its range or an incomplete
/// row, input_file for a number that is not finite, out_of_memory, or failed for a file that cannot
/// be written.
[[nodiscard]] SampleGraph write_neighbour_graph(Communicator& world,
                                                std::span<const float> embeddings, int64_t width,
                                                const std::string& path,
                                                const NeighbourOptions& options = {});

}  // namespace vocabpipe
