// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/check.hpp"
#include "kernels/host/operators.hpp"

namespace vocabpipe::kernels::host {

void set_zero(Context&, std::span<std::byte> bytes) {
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
}

void copy(Context&, std::span<const std::byte> from, std::span<std::byte> to) {
    require(from.size() == to.size(), "source and destination of one length");
    std::copy(from.begin(), from.end(), to.begin());
}

void read_to_host(Context&, std::span<const int32_t> from, std::span<int32_t> to) {
    require(from.size() == to.size(), "source and destination of one length");
    std::copy(from.begin(), from.end(), to.begin());
}

void write_from_host(Context&, std::span<const int32_t> from, std::span<int32_t> to) {
    require(from.size() <= to.size(), "room for what is written");
    std::copy(from.begin(), from.end(), to.begin());
}

}  // namespace vocabpipe::kernels::host
