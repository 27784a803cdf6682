// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/knn_graph.hpp"

#include "src/select/files/graph_file.hpp"
#include "src/select/knn/embedding_rows.hpp"
#include "src/select/knn/hnsw_index.hpp"
#include "src/select/knn/recall.hpp"
#include "src/select/knn/ring.hpp"
#include "src/select/knn/tile_products.hpp"
#include "src/select/knn/unit_rows.hpp"
#include "src/select/ownership.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

constexpr uint64_t kMeasuredProductBytes = uint64_t{2048} * 2048 * sizeof(float);
constexpr uint64_t kLeastChunkBytes = uint64_t{1} << 20;

uint64_t bytes_of(const std::vector<KnnMemory::Term>& terms) {
    uint64_t sum = 0;
    for (const auto& [what, bytes] : terms) sum += bytes;
    return sum;
}

}  // namespace

uint64_t KnnMemory::total() const {
    return std::max(bytes_of(search), bytes_of(writing));
}

KnnMemory plan_knn_memory(int64_t samples, int64_t width, int ranks, const KnnOptions& options) {
    const int64_t tiles = TileOwners(samples, ranks).most_tiles();
    const int64_t rows = tiles * kKnnTile;
    const uint64_t block = UnitRows::bytes(tiles, width);
    const uint64_t lists = NearestLists::bytes(rows, options.neighbours);
    const uint64_t blocks = ranks > 1 ? 2 : 1;
    KnnMemory plan;
    if (options.hnsw) {
        const int64_t of_thread = Ownership(rows, options.threads).largest();
        const int64_t compared = std::min(options.hnsw->recall_samples, samples);
        plan.search = {{"nearest neighbors", lists},
                       {"indices", static_cast<uint64_t>(options.threads) *
                                       HnswIndex::bytes(of_thread, *options.hnsw)},
                       {"recall", recall_bytes(width, ranks, options.neighbours, compared)}};
    } else {
        plan.search = {{"nearest neighbors", blocks * lists},
                       {"products", TileProducts::bytes(options.threads) + kMeasuredProductBytes}};
    }
    plan.search.emplace_back("embeddings", blocks * block);
    plan.search.emplace_back("reading", kEmbeddingReadBytes);
    if (ranks > 1) plan.search.emplace_back("messages", 2 * kRingPieceBytes);
    // Embeddings are freed by then: the rows of the graph may take their memory, and seldom need
    // it.
    const uint64_t without = symmetric_graph_bytes(rows, ranks, options, 0);
    const uint64_t search = bytes_of(plan.search);
    plan.chunk_bytes =
        std::max(search > lists + without ? search - lists - without : 0, kLeastChunkBytes);
    plan.writing = {
        {"nearest neighbors", lists},
        {"rows of the graph", symmetric_graph_bytes(rows, ranks, options, plan.chunk_bytes)}};
    return plan;
}

void check_knn_memory(int64_t samples, int64_t width, int ranks, const KnnOptions& options) {
    const uint64_t needed = plan_knn_memory(samples, width, ranks, options).total();
    if (options.memory == 0 || needed <= options.memory) return;
    // Memory that is not shared among ranks does not shrink with their number.
    int enough = ranks;
    constexpr int kMostRanks = 1 << 16;
    while (enough < kMostRanks &&
           plan_knn_memory(samples, width, enough, options).total() > options.memory) {
        enough *= 2;
    }
    throw OutOfMemoryError(
        "--memory " + std::to_string(options.memory) + ": a rank needs " + std::to_string(needed) +
        " bytes for " + std::to_string(samples) + " samples on " + std::to_string(ranks) +
        (ranks == 1 ? " rank" : " ranks") +
        (enough < kMostRanks ? "; use " + std::to_string(enough) + " ranks, or allow more"
                             : "; allow more"));
}

std::optional<KnnReport> write_knn_graph(Communicator& world, EmbeddingInput& input,
                                         const std::string& path, const KnnOptions& options,
                                         std::map<std::string, std::string> metadata) {
    const int64_t samples = input.samples();
    world.agree([&] {
        if (samples > GraphFile::kMostNodes) {
            throw InputFileError(input.path() + ": has " + std::to_string(samples) +
                                 " samples; at most 2^40 can be numbered");
        }
        check_knn_memory(samples, input.width(), world.size(), options);
    });
    const KnnMemory plan = plan_knn_memory(samples, input.width(), world.size(), options);
    const TileOwners owners(samples, world.size());
    KnnReport report;
    std::optional<NearestLists> lists =
        options.hnsw ? find_nearly_nearest(world, input, owners, options, report.hnsw)
                     : find_nearest(world, input, owners, options, report.rate);
    if (!lists) return std::nullopt;
    const NeighbourRows nearest(*std::exchange(lists, std::nullopt));
    metadata["knn.neighbours"] = std::to_string(options.neighbours);
    if (options.hnsw) metadata["knn.index"] = "hnsw";
    report.graph = write_symmetric_graph(world, owners, nearest, options, plan.chunk_bytes, path,
                                         input.corpus(), std::move(metadata));
    return report;
}

}  // namespace vocabpipe
