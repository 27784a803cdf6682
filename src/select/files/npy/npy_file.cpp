// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/npy/npy_file.hpp"

#include "src/support/half.hpp"

#include <algorithm>
#include <cstring>

namespace vocabpipe {

namespace {

constexpr size_t kNpyBlockBytes = size_t{1} << 20;

NpyHeader read_npy_header(const InputFile& file) {
    std::vector<std::byte> head(std::min(file.size(), kMostNpyHeaderBytes));
    file.read(0, head);
    return parse_npy_header(head, file.size(), file.path());
}

template <typename From, typename To>
void convert_block(const std::vector<std::byte>& block, std::span<To> to) {
    for (size_t i = 0; i < to.size(); ++i) {
        From element;
        std::memcpy(&element, block.data() + i * sizeof element, sizeof element);
        to[i] = static_cast<To>(element);
    }
}

template <typename To>
void convert_block(NpyType type, const std::vector<std::byte>& block, std::span<To> to) {
    switch (type) {
        case NpyType::f2:
            for (size_t i = 0; i < to.size(); ++i) {
                uint16_t bits = 0;
                std::memcpy(&bits, block.data() + i * sizeof bits, sizeof bits);
                to[i] = static_cast<To>(number_of_half(bits));
            }
            return;
        case NpyType::f4:
            return convert_block<float>(block, to);
        case NpyType::f8:
            return convert_block<double>(block, to);
        case NpyType::i4:
            return convert_block<int32_t>(block, to);
        case NpyType::i8:
            return convert_block<int64_t>(block, to);
        case NpyType::u4:
            return convert_block<uint32_t>(block, to);
    }
}

}  // namespace

NpyInput::NpyInput(const std::string& path) : file_(path), header_(read_npy_header(file_)) {}

template <typename To>
void NpyInput::read_as(int64_t first, std::span<To> to) {
    const uint64_t item = item_size(header_.type);
    uint64_t at = header_.data_begin + static_cast<uint64_t>(first) * item;
    while (!to.empty()) {
        const size_t count = std::min<size_t>(to.size(), kNpyBlockBytes / item);
        block_.resize(count * item);
        file_.read(at, block_);
        convert_block(header_.type, block_, to.first(count));
        at += block_.size();
        to = to.subspan(count);
    }
}

void NpyInput::read(int64_t first, std::span<double> to) {
    read_as(first, to);
}
void NpyInput::read(int64_t first, std::span<float> to) {
    read_as(first, to);
}

NpyOutput::NpyOutput(const std::string& path, NpyType type, const std::vector<int64_t>& shape)
    : file_(path) {
    file_.write(npy_header(type, shape));
}

}  // namespace vocabpipe
