// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/sample_input.hpp"

#include "src/select/files/npy/npy_file.hpp"
#include "src/select/files/parquet/parquet.hpp"
#include "src/select/files/scores_file.hpp"
#include "src/support/text_layout.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace vocabpipe {

namespace {

constexpr size_t kConvertedAtOnce = size_t{1} << 16;

class ScoresUtility : public UtilityInput {
public:
    explicit ScoresUtility(ScoresReader file)
        : UtilityInput(file.path(), file.info().corpus, file.info().utility_kind),
          file_(std::move(file)) {}
    void read(int64_t first, std::span<int32_t> to) override { file_.read_utility(first, to); }

private:
    ScoresReader file_;
};

class ScoresEmbedding : public EmbeddingInput {
public:
    explicit ScoresEmbedding(ScoresReader file)
        : EmbeddingInput(file.path(), file.info().corpus, file.info().hidden_size),
          file_(std::move(file)) {}
    void read(int64_t first, std::span<float> to) override { file_.read_embedding(first, to); }

private:
    ScoresReader file_;
};

Corpus samples_alone(int64_t samples) {
    return {.data = {}, .seq_length = 0, .samples = samples};
}

/// An array with one number per sample.
class NpyUtility : public UtilityInput {
public:
    explicit NpyUtility(NpyInput file)
        : UtilityInput(file.path(), samples_alone(file.header().shape.front()), "imported"),
          file_(std::move(file)) {}
    void read(int64_t first, std::span<int32_t> to) override {
        while (!to.empty()) {
            const size_t count = std::min(to.size(), kConvertedAtOnce);
            numbers_.resize(count);
            file_.read(first, std::span<double>(numbers_));
            for (size_t i = 0; i < count; ++i) {
                to[i] = fixed_point_from(
                    numbers_[i], place_of(path(), first + static_cast<int64_t>(i), "utility"));
            }
            first += static_cast<int64_t>(count);
            to = to.subspan(count);
        }
    }

private:
    NpyInput file_;
    std::vector<double> numbers_;
};

class NpyEmbedding : public EmbeddingInput {
public:
    explicit NpyEmbedding(NpyInput file)
        : EmbeddingInput(file.path(), samples_alone(file.header().shape.front()),
                         file.header().shape.back()),
          file_(std::move(file)) {}
    void read(int64_t first, std::span<float> to) override {
        file_.read(first * width(), to);
        check_embeddings(path(), width(), first, to);
    }

private:
    NpyInput file_;
};

NpyInput npy_of_shape(const std::string& path, size_t dimensions, const char* what) {
    NpyInput file(path);
    const auto& shape = file.header().shape;
    if (shape.size() == dimensions && (dimensions == 1 || shape.back() >= 1)) return file;
    throw InputFileError(path + ": has shape " + shape_text(shape) + "; " + what);
}

ScoresReader scores_with(const std::string& path, bool utility) {
    ScoresReader file(path);
    if (utility ? file.info().utility_kind.empty() : file.info().hidden_size == 0) {
        throw InputFileError(path + ": has no " + (utility ? "utilities" : "embeddings") +
                             "; make it with vocabpipe select score, or give a .npy or .parquet "
                             "file");
    }
    return file;
}

template <typename Input>
std::unique_ptr<Input> with_samples(std::unique_ptr<Input> input) {
    if (input->samples() > 0) return input;
    throw InputFileError(input->path() + ": has no samples");
}

}  // namespace

int32_t fixed_point_from(double number, const std::string& where) {
    constexpr double kLimit = 2048;  // 2^31 / 2^20
    if (number >= 0 && number * kFixedPointOne < kLimit * kFixedPointOne - 0.5) {
        return static_cast<int32_t>(std::nearbyint(number * kFixedPointOne));
    }
    throw InputFileError(where + " is " + format("%g", number) +
                         "; it must be at least 0 and below 2048" +
                         (number >= kLimit ? ": divide all of them by one number" : ""));
}

std::string place_of(const std::string& path, int64_t row, std::string_view name) {
    return path + ": row " + std::to_string(row) + ": " + std::string(name);
}

void check_embeddings(const std::string& path, int64_t width, int64_t first,
                      std::span<const float> rows) {
    const auto bad =
        std::ranges::find_if(rows, [](float number) { return !std::isfinite(number); });
    if (bad == rows.end()) return;
    throw InputFileError(place_of(path, first + (bad - rows.begin()) / width, "embedding") +
                         " has " + format("%g", static_cast<double>(*bad)) +
                         "; all numbers must be finite in fp32: remove the sample or repair it");
}

bool is_npy(const std::string& path) {
    return path.ends_with(".npy");
}
bool is_parquet(const std::string& path) {
    return path.ends_with(".parquet");
}

std::unique_ptr<UtilityInput> open_utility(const std::string& path) {
    if (is_parquet(path)) return with_samples(open_parquet_utility(path));
    if (is_npy(path)) {
        return with_samples<UtilityInput>(std::make_unique<NpyUtility>(
            npy_of_shape(path, 1, "utilities are one number per sample")));
    }
    return with_samples<UtilityInput>(std::make_unique<ScoresUtility>(scores_with(path, true)));
}

std::unique_ptr<EmbeddingInput> open_embedding(const std::string& path) {
    if (is_parquet(path)) return with_samples(open_parquet_embedding(path));
    if (is_npy(path)) {
        return with_samples<EmbeddingInput>(std::make_unique<NpyEmbedding>(
            npy_of_shape(path, 2, "embeddings are rows of at least one number, one per sample")));
    }
    return with_samples<EmbeddingInput>(
        std::make_unique<ScoresEmbedding>(scores_with(path, false)));
}

}  // namespace vocabpipe
