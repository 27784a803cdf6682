// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/neighbour_graph.hpp"

#include "src/select/files/sample_input.hpp"
#include "src/select/knn/centred_embeddings.hpp"
#include "src/select/knn/knn_graph.hpp"
#include "src/support/output_check.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace vocabpipe {

namespace {

/// The embeddings of a caller.
class GivenEmbeddings final : public EmbeddingInput {
public:
    GivenEmbeddings(std::span<const float> rows, int64_t width)
        : EmbeddingInput("embeddings",
                         {.data = {}, .seq_length = 0, .samples = std::ssize(rows) / width}, width),
          rows_(rows) {}
    void read(int64_t first, std::span<float> to) override {
        std::ranges::copy(rows_.subspan(static_cast<size_t>(first * width()), to.size()),
                          to.begin());
        check_embeddings(path(), width(), first, to);
    }

private:
    std::span<const float> rows_;
};

void check(std::span<const float> embeddings, int64_t width, const NeighbourOptions& options) {
    if (width < 1 || embeddings.empty() || std::ssize(embeddings) % width != 0) {
        throw UsageError("embeddings: " + std::to_string(embeddings.size()) +
                         " numbers are no rows of " + std::to_string(width));
    }
    if (options.neighbours < 1 || options.neighbours > kMostKnnNeighbours) {
        throw UsageError("--neighbours " + std::to_string(options.neighbours) +
                         ": must be from 1 to " + std::to_string(kMostKnnNeighbours));
    }
    if (options.threads < 1 || options.threads > kMostKnnThreads) {
        throw UsageError("--threads-per-rank " + std::to_string(options.threads) +
                         ": must be from 1 to " + std::to_string(kMostKnnThreads));
    }
}

}  // namespace

SampleGraph write_neighbour_graph(Communicator& world, std::span<const float> embeddings,
                                  int64_t width, const std::string& path,
                                  const NeighbourOptions& options) {
    const KnnOptions knn{.neighbours = options.neighbours,
                         .threads = options.threads,
                         .memory = options.memory,
                         .progress = options.progress};
    std::unique_ptr<EmbeddingInput> input;
    world.agree([&] {
        check(embeddings, width, options);
        input = std::make_unique<GivenEmbeddings>(embeddings, width);
        check_knn_memory(input->samples(), width, world.size(), knn);
        if (world.rank() != 0) return;
        OutputCheck({}).add("--output", path, graph_output());
        const OutputFile probe(path);
    });
    std::map<std::string, std::string> metadata;
    if (options.centre) {
        input = centre_embeddings(world, std::move(input));
        metadata["knn.centre"] = "true";
    }
    (void)write_knn_graph(world, *input, path, knn, std::move(metadata));
    std::optional<SampleGraph> graph;
    world.agree([&] { graph.emplace(path); });
    return std::move(*graph);
}

}  // namespace vocabpipe
