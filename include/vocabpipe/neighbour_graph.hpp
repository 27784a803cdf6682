// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/sample_graph.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace vocabpipe {

/// Options of write_neighbour_graph(), with the names of flags of `vocabpipe select knn` and,
/// except for `threads`, their defaults.
struct NeighbourOptions {
    int64_t neighbours = 10;  ///< per sample, before edges are made symmetric; as in the paper
    /// Takes the mean of all embeddings from each before the cosines: hidden states of language
    /// models share a large common part. Default: embeddings as they are.
    bool centre = false;
    /// OpenMP threads per rank, the tool's --threads-per-rank, 1 to 1024. Ranks x threads > cores
    /// is very slow.
    int threads = 1;
    /// Bytes per rank, without the caller's embeddings; checked before the work. Default 0: not
    /// checked.
    uint64_t memory = 0;
    /// Called on every rank with a phase and its progress, total 0: unknown. Ranks that are threads
    /// call it at the same time. May be empty.
    std::function<void(const char* phase, int64_t done, int64_t total)> progress = {};
};

/// Writes the graph in which two samples are neighbours if one of them is among the nearest of the
/// other by cosine, which is the weight of their edge, to `path`, and opens it. Cosines that are
/// not positive make no edge. Exact up to fp32 rounding, and the file has the same bytes for any
/// number of ranks and threads, on one kind of CPU. `embeddings`: (samples, width) fp32, row-major,
/// the same on every rank, `width` at least 1. An older graph at `path` is replaced, and no other
/// file. Collective: all ranks see the folder of `path`. Errors are an AgreedError on every rank:
/// with ExitCode::usage for an option out of its range, an incomplete row or a `path` of another
/// kind of file, input_file for a number that is not finite or a row of zeros, out_of_memory, or
/// failed for a file that cannot be written.
[[nodiscard]] SampleGraph write_neighbour_graph(Communicator& world,
                                                std::span<const float> embeddings, int64_t width,
                                                const std::string& path,
                                                const NeighbourOptions& options = {});

}  // namespace vocabpipe
