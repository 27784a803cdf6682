// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/input_file.hpp"
#include "src/train/data/sample_columns.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// The name of the weights that a file of columns may have besides them.
inline constexpr const char* kLossWeightsColumn = "loss_weights";

/// What a file of columns is opened for.
struct ColumnsWanted {
    std::vector<NamedColumns> columns;  ///< in the order of Sample::columns
    std::vector<std::string> known;     ///< others that the file may have, and are not read
    int64_t samples = 0;                ///< of the training data, in the order of their numbers
    int64_t seq_length = 0;
    int64_t vocab_size = 0;  ///< limit of ids
};

/// A file of numbers for every token: the columns of `--columns`, as vocabpipe score writes
/// records. Element (i, n) belongs to token n of sample i and to its label. Two formats:
///
///     .safetensors   tensors F32 (samples, seq_length), each with the name of its column; lists of
///                    k entries F32 or, of ids, I32 (samples, seq_length, k)
///     .npy           <f4 (columns, samples, seq_length), in the order of ColumnsWanted::columns;
///                    of lists all first entries, then all second ones; ids as fp32 numbers; of one
///                    column also (samples, seq_length)
///
/// Both may also have loss_weights (.npy of several columns: last), which multiply
/// Sample::loss_weights; 0 ignores a label. Read a sample at a time, through the page cache that
/// all ranks of a machine share.
class ColumnsFile final : public SampleColumns {
public:
    /// Opens `path`, the value of `flag`, and checks names, types and shapes; InputFileError.
    ColumnsFile(const std::string& flag, const std::string& path, const ColumnsWanted& wanted);

    [[nodiscard]] SampleForm form() const override {
        return {.weighs_labels = weights_.has_value(), .columns = columns_};
    }
    /// InputFileError for numbers that are not what ColumnKind says, and for negative weights.
    void add(int64_t number, Sample& out) const override;

    /// Reads every number, or in files of more than `most` numbers samples that are evenly spaced;
    /// errors as add().
    void check(int64_t most) const;
    /// "C columns of N samples, checksum X", of some samples: equal for equal files.
    [[nodiscard]] const std::string& identity() const { return identity_; }

private:
    /// Columns that lie together in the file.
    struct Block {
        NamedColumns of;
        uint64_t begin = 0;     ///< byte of the first number
        bool integers = false;  ///< int32 in place of fp32
    };

    void open_npy(const ColumnsWanted& wanted);
    /// The file that was opened.
    [[nodiscard]] InputFile open_safetensors(const std::string& path, const ColumnsWanted& wanted);
    [[nodiscard]] std::string find_identity() const;
    /// Reads the sample's numbers of a block as `to` (columns, seq_length).
    void read(const Block& block, int64_t number, std::span<float> to) const;
    /// InputFileError for the first number, of token n at n modulo seq_length, that is none of
    /// `kind`.
    void check(const NamedColumns& of, int64_t number, std::span<const float> values) const;
    /// InputFileError that says which element is wrong.
    [[noreturn]] void refuse(const std::string& column, int64_t number, size_t token, float value,
                             const std::string& limit) const;

    std::string given_;             ///< flag and path, for messages
    std::vector<Block> blocks_;     ///< of the columns, in their order
    std::optional<Block> weights_;  ///< none: there are none
    int64_t columns_ = 0;           ///< of all blocks
    int64_t samples_, seq_length_, vocab_size_;
    InputFile file_;
    std::string identity_;
};

}  // namespace vocabpipe
