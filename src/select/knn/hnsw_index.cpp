// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/hnsw_index.hpp"

#include <hnswlib/hnswlib.h>

#include <cstddef>
#include <cstring>

namespace vocabpipe {

namespace {

/// hnswlib's inner product for rows of which its index holds addresses, not copies: with copies, a
/// rank would have its embeddings three times.
class RowAddresses : public hnswlib::SpaceInterface<float> {
public:
    explicit RowAddresses(int64_t width)
        : inner_(static_cast<size_t>(width)),
          product_{.distance = inner_.get_dist_func(), .width = inner_.get_dist_func_param()} {}

    size_t get_data_size() override { return sizeof(const float*); }
    hnswlib::DISTFUNC<float> get_dist_func() override { return distance; }
    void* get_dist_func_param() override { return &product_; }

private:
    struct Product {
        hnswlib::DISTFUNC<float> distance;
        void* width;
    };

    /// The index does not align what it holds.
    static const float* row_at(const void* address) {
        const float* row = nullptr;
        std::memcpy(&row, address, sizeof row);
        return row;
    }
    static float distance(const void* a, const void* b, const void* product) {
        const auto& of = *static_cast<const Product*>(product);
        return of.distance(row_at(a), row_at(b), of.width);
    }

    hnswlib::InnerProductSpace inner_;
    Product product_;
};

}  // namespace

struct HnswIndex::Graph {
    Graph(const UnitRows& block, int64_t first, int64_t count, const HnswOptions& options)
        : rows(block.row(first)),
          stride(block.stride()),
          first_row(first),
          space(block.stride()),  // numbers behind the row are 0
          index(&space, static_cast<size_t>(count), static_cast<size_t>(options.m),
                static_cast<size_t>(options.ef_construction)) {
        index.setEf(static_cast<size_t>(options.ef_search));
    }

    const float* rows;
    int64_t stride, first_row;
    RowAddresses space;
    hnswlib::HierarchicalNSW<float> index;
};

HnswIndex::HnswIndex(const UnitRows& rows, int64_t first, int64_t count, const HnswOptions& options)
    : graph_(std::make_unique<Graph>(rows, first, count, options)) {}
HnswIndex::~HnswIndex() = default;
HnswIndex::HnswIndex(HnswIndex&& other) noexcept = default;
HnswIndex& HnswIndex::operator=(HnswIndex&& other) noexcept = default;

uint64_t HnswIndex::bytes(int64_t count, const HnswOptions& options) {
    constexpr uint64_t kLink = 4;
    // Address, label, lock, layer, list of upper links, and an entry of a hash table.
    constexpr uint64_t kPerRow = 8 + 8 + 40 + 4 + 8 + 40;
    constexpr uint64_t kLocks = uint64_t{65536} * 40;
    const auto links = static_cast<uint64_t>(options.m) * kLink;
    // One row of m is in the layer above, too.
    return kLocks + static_cast<uint64_t>(count) * (kPerRow + 2 * links + kLink + 2 * kLink);
}

void HnswIndex::add(int64_t row) {
    const float* const address = graph_->rows + (row - graph_->first_row) * graph_->stride;
    graph_->index.addPoint(&address, static_cast<hnswlib::labeltype>(row));
}

void HnswIndex::search(const float* query, int64_t most,
                       const std::function<void(int64_t row, float cosine)>& found) const {
    auto nearest = graph_->index.searchKnn(&query, static_cast<size_t>(most));
    for (; !nearest.empty(); nearest.pop()) {
        found(static_cast<int64_t>(nearest.top().second), 1 - nearest.top().first);
    }
}

}  // namespace vocabpipe
