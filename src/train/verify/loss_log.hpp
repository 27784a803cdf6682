// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// The loss of a step as a log has it.
struct LoggedLoss {
    int64_t step = 0;     ///< from 1
    double loss = 0;      ///< may be NaN or infinite
    double rounding = 0;  ///< half a unit of the last digit that is printed
};

/// The losses of a run in a file of text, ascending by step, of a step that was logged twice the
/// last one. Each line is read as what it is:
///
/// * JSON, an object with `column` and with "step" or "iteration" (train_gpt --metrics)
/// * CSV below a line of names, `column` among them, and perhaps "step" or "iteration"
/// * a line with "iteration N/" and `column`, a number after it (Megatron-LM, train_gpt)
/// * a number, the loss of the next step
///
/// `column`: empty for the first of "lm loss", "loss", "train_loss" and "train/loss" that a line
/// has. Lines that are none of these are passed over, as a console log has them. Throws
/// InputFileError if no line has a loss, and for what is none where a loss stands.
[[nodiscard]] std::vector<LoggedLoss> read_loss_log(const std::string& path,
                                                    const std::string& column);

}  // namespace vocabpipe
