// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/device_batch.hpp"

#include <cstring>

namespace vocabpipe {

std::span<const Microbatch> DeviceBatch::load(Device& device, std::span<const Microbatch> host) {
    if (!device.asynchronous()) return host;
    size_t bytes = 0;
    for (const Microbatch& m : host) {
        bytes += m.tokens.size_bytes() + m.labels.size_bytes() + m.loss_gradient.size_bytes() +
                 m.first_visible.size_bytes() + m.positions.size_bytes() + m.columns.size_bytes();
    }
    if (memory_.size() < bytes) {
        memory_ = {};
        memory_ = device.allocate(bytes, "tokens and labels of a step");
        staged_ = {};
        staged_ = device.allocate_staging(bytes);
    }
    microbatches_.assign(host.begin(), host.end());
    size_t at = 0;
    const auto place = [&]<typename T>(std::span<const T>& values) {
        if (!values.empty()) std::memcpy(staged_.data() + at, values.data(), values.size_bytes());
        values = {reinterpret_cast<const T*>(memory_.data() + at), values.size()};
        at += values.size_bytes();
    };
    for (Microbatch& m : microbatches_) {
        m.loss_weight = m.weight();
        place(m.tokens);
        place(m.labels);
        place(m.loss_gradient);
        place(m.first_visible);
        place(m.positions);
        place(m.columns);
    }
    device.enqueue_upload(staged_.bytes().first(bytes), memory_.data());
    return microbatches_;
}

}  // namespace vocabpipe
