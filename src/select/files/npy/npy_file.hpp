// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/npy/header.hpp"
#include "src/support/input_file.hpp"
#include "src/support/output_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// A .npy file that is read by parts.
class NpyInput {
public:
    /// Reads the header. InputFileError.
    explicit NpyInput(const std::string& path);

    [[nodiscard]] const std::string& path() const { return file_.path(); }
    [[nodiscard]] const NpyHeader& header() const { return header_; }
    /// Reads elements from `first` on, of any type. Integers beyond 2^53 are rounded.
    void read(int64_t first, std::span<double> to);
    /// The same, rounded to fp32; larger numbers become infinite.
    void read(int64_t first, std::span<float> to);

private:
    template <typename To>
    void read_as(int64_t first, std::span<To> to);

    InputFile file_;
    NpyHeader header_;
    std::vector<std::byte> block_;
};

/// Writes a .npy file front to back; it appears when it is complete.
class NpyOutput {
public:
    NpyOutput(const std::string& path, NpyType type, const std::vector<int64_t>& shape);

    /// Over all calls as many elements as the shape has; T must be the header's type.
    template <typename T>
    void write(std::span<const T> elements) {
        file_.write(std::as_bytes(elements));
    }
    void publish() { file_.publish(); }

private:
    OutputFile file_;
};

}  // namespace vocabpipe
