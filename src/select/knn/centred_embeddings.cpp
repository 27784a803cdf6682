// SPDX-License-Identifier: Apache-2.0
#include "src/select/knn/centred_embeddings.hpp"

#include "src/select/knn/embedding_rows.hpp"
#include "src/select/ownership.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace vocabpipe {

namespace {

// Keeps sums of 2^32 samples below 2^62.
constexpr double kSteps = 0x1p30;

class CentredEmbeddings final : public EmbeddingInput {
public:
    CentredEmbeddings(std::unique_ptr<EmbeddingInput> input, std::vector<float> mean)
        : EmbeddingInput(input->path(), input->corpus(), input->width()),
          input_(std::move(input)),
          mean_(std::move(mean)) {}

    void read(int64_t first, std::span<float> to) override {
        input_->read(first, to);
        for (size_t i = 0; i < to.size(); i += mean_.size()) {
            for (size_t j = 0; j < mean_.size(); ++j) to[i + j] -= mean_[j];
        }
    }

private:
    std::unique_ptr<EmbeddingInput> input_;
    std::vector<float> mean_;
};

void largest_over_ranks(Communicator& world, std::vector<float>& values) {
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(values)))) {
        std::vector<float> other(values.size());
        std::memcpy(other.data(), bytes.data(), bytes.size());
        for (size_t j = 0; j < values.size(); ++j) values[j] = std::max(values[j], other[j]);
    }
}

}  // namespace

std::unique_ptr<EmbeddingInput> centre_embeddings(Communicator& world,
                                                  std::unique_ptr<EmbeddingInput> input) {
    const auto width = static_cast<size_t>(input->width());
    const Ownership owners(input->samples(), world.size());
    const int64_t first = owners.begin(world.rank());
    const int64_t last = owners.end(world.rank());
    std::vector<float> largest(width);
    world.agree([&] {
        for_each_embedding(*input, first, last, [&](int64_t, const float* row) {
            for (size_t j = 0; j < width; ++j) largest[j] = std::max(largest[j], std::abs(row[j]));
        });
    });
    largest_over_ranks(world, largest);
    std::vector<uint64_t> sums(width);  // two's complement: sums are modulo 2^64
    world.agree([&] {
        for_each_embedding(*input, first, last, [&](int64_t, const float* row) {
            for (size_t j = 0; j < width; ++j) {
                if (largest[j] == 0) continue;
                sums[j] += static_cast<uint64_t>(
                    std::llround(double{row[j]} / double{largest[j]} * kSteps));
            }
        });
    });
    add_over_ranks(world, sums);
    std::vector<float> mean(width);
    const double samples = static_cast<double>(std::max<int64_t>(input->samples(), 1));
    for (size_t j = 0; j < width; ++j) {
        mean[j] = static_cast<float>(static_cast<double>(static_cast<int64_t>(sums[j])) / kSteps /
                                     samples * double{largest[j]});
    }
    return std::make_unique<CentredEmbeddings>(std::move(input), std::move(mean));
}

}  // namespace vocabpipe
