// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/knn/hnsw_options.hpp"
#include "src/select/knn/unit_rows.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace vocabpipe {

/// hnswlib's index of some rows of a block. The rows stay in the block, which must outlive it.
class HnswIndex {
public:
    /// For the rows [first, first + count), which add() puts in. UsageError in builds without
    /// hnswlib.
    HnswIndex(const UnitRows& rows, int64_t first, int64_t count, const HnswOptions& options);
    ~HnswIndex();
    HnswIndex(HnswIndex&& other) noexcept;
    HnswIndex& operator=(HnswIndex&& other) noexcept;
    /// An estimate for `count` rows.
    [[nodiscard]] static uint64_t bytes(int64_t count, const HnswOptions& options);

    /// Adds a row, each once. Rows that come in the same order, from one thread, give the same
    /// index.
    void add(int64_t row);
    /// Calls `found` with up to `most` rows of the index, and their cosines with `query`, a row of
    /// length 1. Several threads may search at once.
    void search(const float* query, int64_t most,
                const std::function<void(int64_t row, float cosine)>& found) const;

private:
    struct Graph;
    std::unique_ptr<Graph> graph_;
};

}  // namespace vocabpipe
