// SPDX-License-Identifier: Apache-2.0
// Utilities and embeddings of samples in files of any origin: "vocabpipe scores 1" (safetensors),
// .npy or .parquet, distinguished by the extension.
#pragma once

#include "src/select/files/corpus.hpp"
#include "src/select/files/fixed_point.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace vocabpipe {

/// The nearest multiple of 2^-20, ties to even. InputFileError "WHERE: ..." if the number is
/// negative, NaN or not below 2048.
[[nodiscard]] int32_t fixed_point_from(double number, const std::string& where);
/// "PATH: row ROW: NAME": the place of a number.
[[nodiscard]] std::string place_of(const std::string& path, int64_t row, std::string_view name);

/// InputFileError if a number in these rows is not finite; `first`: the sample of the first row.
void check_embeddings(const std::string& path, int64_t width, int64_t first,
                      std::span<const float> rows);

/// Common base of utilities and embeddings.
class SampleInput {
public:
    virtual ~SampleInput() = default;
    SampleInput(const SampleInput&) = delete;
    SampleInput& operator=(const SampleInput&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    /// For files of other programs, only the number of samples is known.
    [[nodiscard]] const Corpus& corpus() const { return corpus_; }
    [[nodiscard]] int64_t samples() const { return corpus_.samples; }

protected:
    SampleInput(std::string path, Corpus corpus)
        : path_(std::move(path)), corpus_(std::move(corpus)) {}

private:
    std::string path_;
    Corpus corpus_;
};

class UtilityInput : public SampleInput {
public:
    /// margin, loss or perplexity; "imported" for files of other programs.
    [[nodiscard]] const std::string& kind() const { return kind_; }
    /// Reads utilities of the samples from `first` on, as integers of 2^-20, at least 0.
    /// InputFileError with file and sample.
    virtual void read(int64_t first, std::span<int32_t> to) = 0;

protected:
    UtilityInput(std::string path, Corpus corpus, std::string kind)
        : SampleInput(std::move(path), std::move(corpus)), kind_(std::move(kind)) {}

private:
    std::string kind_;
};

class EmbeddingInput : public SampleInput {
public:
    /// Length of an embedding, at least 1.
    [[nodiscard]] int64_t width() const { return width_; }
    /// Reads embeddings of the samples from `first` on: whole rows of finite numbers.
    /// InputFileError with file and sample.
    virtual void read(int64_t first, std::span<float> to) = 0;

protected:
    EmbeddingInput(std::string path, Corpus corpus, int64_t width)
        : SampleInput(std::move(path), std::move(corpus)), width_(width) {}

private:
    int64_t width_;
};

/// Reads and checks the header. The reader itself takes 1 MiB, or a row group of a Parquet file.
/// InputFileError.
[[nodiscard]] std::unique_ptr<UtilityInput> open_utility(const std::string& path);
[[nodiscard]] std::unique_ptr<EmbeddingInput> open_embedding(const std::string& path);

/// Tests of a file's extension, which tells the format.
[[nodiscard]] bool is_npy(const std::string& path);
[[nodiscard]] bool is_parquet(const std::string& path);

}  // namespace vocabpipe
