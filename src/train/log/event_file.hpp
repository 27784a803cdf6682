// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/append_file.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace vocabpipe {

/// A number of a step under a name, as TensorBoard draws it.
struct ScalarSummary {
    std::string tag;
    float value = 0;
};

/// A TensorBoard event file: TFRecord frames around Event messages of protobuf
/// (tensorflow/core/util/event.proto and summary.proto), with the few fields that scalars need. A
/// folder may hold the files of many runs; each run writes a new one.
class EventFile {
public:
    /// Creates events.out.tfevents.TIME.HOST.PID in `folder`, which --tensorboard-dir asked for.
    /// TensorBoard then drops the values that other files of the folder have for `first_step` and
    /// later steps, so a resumed run shows each step once.
    EventFile(const std::string& folder, int64_t first_step);

    void add(int64_t step, std::span<const ScalarSummary> scalars);
    /// Closes the file; throws if that fails.
    void close() { file_->close(); }
    [[nodiscard]] const std::string& path() const { return file_->path(); }

private:
    std::optional<AppendFile> file_;
};

}  // namespace vocabpipe
