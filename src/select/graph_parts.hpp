// SPDX-License-Identifier: Apache-2.0
// A graph in parts: the rows of a range of samples each, for hosts that share no file system.
#pragma once

#include "src/select/files/graph_file.hpp"
#include "src/select/files/sample_input.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe {

/// A graph of which ranks see parts.
struct PartedGraph {
    Ownership owners;
    int64_t entries = 0;  ///< in all rows
    int parts = 0;        ///< 1: all ranks see the whole graph
};

/// Who owns which samples if `graph` is what each rank sees under one path: the whole graph, or
/// the part of its host. Ranks with the same part share it evenly. AgreedError, with flag, rank and
/// rows, unless parts of one graph follow each other in the order of the ranks. Collective.
[[nodiscard]] PartedGraph owners_of_parts(Communicator& world, const GraphFile& graph);

/// Where hosts have files of their own: AgreedError unless the utilities of some samples are the
/// same on all ranks. Collective.
void check_same_utilities(Communicator& world, UtilityInput& utility);

/// "graph-00002-of-00004.safetensors" of "graph.safetensors": the file of a part, from 0 on.
[[nodiscard]] std::string graph_part_name(const std::string& output, int part, int parts);

/// Writes the rows of a graph to `parts` files, whose numbers of samples differ by at most one.
/// `progress` is called with rows that are done. InputFileError, OutputFileError.
void split_graph(const GraphFile& graph, int parts, const std::string& output,
                 const std::function<void(int64_t done)>& progress = {});

}  // namespace vocabpipe
