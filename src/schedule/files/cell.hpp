// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

// One cell of a schedule file: its syntax, and its meaning in a dialect. A cell must parse as a
// whole: PyTorch's reader matches a prefix and reads 0BW3 as a B without a microbatch.

namespace vocabpipe::files {

/// An error in a cell; the reader adds file, row and cell.
class CellError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

/// `<stage><WORD><microbatch>`, uninterpreted.
struct RawAction {
    std::optional<uint32_t> stage, microbatch;
    std::string_view word;
};

/// The actions of one cell, uninterpreted.
struct RawCell {
    std::string_view text;
    std::vector<RawAction> actions;  ///< none: an idle step
    bool pair = false;               ///< (a;b)OVERLAP_F_B
    bool batched = false;            ///< <s>SEND_F<m>_<s2>RECV_B<m2>, old files only
};

/// Throws CellError.
[[nodiscard]] RawCell parse_cell(std::string_view text);

/// Cells of lowered files that are not passes. Those up to wait_send_b have a microbatch.
enum class Transfer : uint8_t {
    send_f,
    recv_f,
    send_b,
    recv_b,
    wait_send_f,
    wait_send_b,
    unshard,
    reshard,
    reduce_grad,
    wait_reduce_grad,
};
/// Whether PyTorch wrote the word only after its renaming.
[[nodiscard]] constexpr bool is_new(Transfer word) {
    return word == Transfer::wait_send_f || word == Transfer::wait_send_b ||
           word >= Transfer::reduce_grad;
}
/// The word, or none.
[[nodiscard]] std::optional<Transfer> transfer_of(std::string_view word);
[[nodiscard]] std::string_view to_string(Transfer word);

/// What an action means: a pass, or a cell that lowering infers.
struct Meaning {
    std::optional<Pass> pass;
    Transfer transfer = Transfer::send_f;  ///< if there is no pass
    uint32_t stage = 0;
    uint32_t microbatch = 0;
};

/// Throws CellError with the remedy. `dialect` is neither automatic nor lowered. In the old dialect
/// it returns B as an input gradient; the reader makes it a full backward if there is no W.
[[nodiscard]] Meaning meaning_of(const RawCell& cell, const RawAction& action, CsvDialect dialect);

/// Text from a file for a message: in quotes, printable and short.
[[nodiscard]] std::string shown(std::string_view text);

}  // namespace vocabpipe::files
