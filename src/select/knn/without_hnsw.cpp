// SPDX-License-Identifier: Apache-2.0
// HnswIndex in builds without hnswlib.
#include "src/select/knn/hnsw_index.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

struct HnswIndex::Graph {};

HnswIndex::HnswIndex(const UnitRows& /*rows*/, int64_t /*first*/, int64_t /*count*/,
                     const HnswOptions& /*options*/) {
    throw UsageError(
        "--index hnsw: this build has no hnswlib; install libhnswlib-dev and configure it again, "
        "or use --index exact");
}
HnswIndex::~HnswIndex() = default;
HnswIndex::HnswIndex(HnswIndex&& other) noexcept = default;
HnswIndex& HnswIndex::operator=(HnswIndex&& other) noexcept = default;

uint64_t HnswIndex::bytes(int64_t /*count*/, const HnswOptions& /*options*/) {
    return 0;
}
void HnswIndex::add(int64_t /*row*/) {}
void HnswIndex::search(const float* /*query*/, int64_t /*most*/,
                       const std::function<void(int64_t row, float cosine)>& /*found*/) const {}

}  // namespace vocabpipe
