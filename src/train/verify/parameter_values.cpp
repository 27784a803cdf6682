// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/parameter_values.hpp"

#include "kernels/bf16.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

namespace vocabpipe {

namespace {

/// `tensor`: dense.
std::vector<float> downloaded(ConstTensor tensor, Device& device) {
    const auto count = static_cast<size_t>(tensor.size());
    std::vector<float> values(count);
    if (count == 0) return values;
    if (tensor.dtype == DType::fp32) {
        device.download(tensor.as<std::byte>(), std::as_writable_bytes(std::span(values)));
        return values;
    }
    std::vector<kernels::Bf16> half(count);
    device.download(tensor.as<std::byte>(), std::as_writable_bytes(std::span(half)));
    for (size_t i = 0; i < count; ++i) values[i] = kernels::to_float(half[i]);
    return values;
}

/// Lists of one message, one after the other, each after its length.
class MessageWriter {
public:
    template <typename List>
    void add(const List& list) {
        const auto items = std::span(list);
        const uint64_t count = items.size();
        put(std::as_bytes(std::span(&count, 1)));
        put(std::as_bytes(items));
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

private:
    void put(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    }
    std::vector<std::byte> bytes_;
};

/// Reads such a message.
class MessageReader {
public:
    explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}
    template <typename List>
    void read(List& list) {
        uint64_t count = 0;
        take(std::as_writable_bytes(std::span(&count, 1)));
        list.resize(count);
        take(std::as_writable_bytes(std::span(list)));
    }

private:
    void take(std::span<std::byte> to) {
        if (to.empty()) return;
        std::memcpy(to.data(), rest_.data(), to.size());
        rest_ = rest_.subspan(to.size());
    }
    std::span<const std::byte> rest_;
};

std::vector<std::byte> message_of(const ParameterValues& values) {
    MessageWriter writer;
    writer.add(values.name);
    writer.add(values.runs);
    writer.add(values.weight);
    writer.add(std::vector{values.first_weight, values.first});
    writer.add(values.gradient);
    return writer.take();
}

ParameterValues values_in(std::span<const std::byte> message) {
    MessageReader reader(message);
    ParameterValues values;
    std::vector<int64_t> first;
    reader.read(values.name);
    reader.read(values.runs);
    reader.read(values.weight);
    reader.read(first);
    reader.read(values.gradient);
    values.first_weight = first.front();
    values.first = first.back();
    return values;
}

}  // namespace

ParameterValues values_of(const Parameter& parameter, Device& device) {
    ParameterValues values{.name = parameter.name,
                           .runs = {},
                           .weight = downloaded(parameter.lasting_weight(), device),
                           .first_weight = parameter.shards_weight ? parameter.owned.first : 0,
                           .first = parameter.owned.first,
                           .gradient = {}};
    for_each_run(parameter.shard, parameter.logical_cols,
                 [&](const ElementRun& run) { values.runs.push_back(run); });
    // Without moments it is frozen, or another parameter of this rank has the same weight.
    if (parameter.exp_avg && parameter.gradient) {
        values.gradient = downloaded(parameter.owned_gradient, device);
    }
    return values;
}

std::vector<std::optional<ParameterValues>> gather_values(Communicator& communicator,
                                                          const Parameter* mine, Device& device) {
    std::vector<std::vector<std::byte>> to_each(static_cast<size_t>(communicator.size()));
    communicator.agree([&] {
        if (mine != nullptr) to_each.front() = message_of(values_of(*mine, device));
    });
    const auto from_each = communicator.all_to_all(to_each);
    std::vector<std::optional<ParameterValues>> all;
    if (communicator.rank() != 0) return all;
    for (const std::vector<std::byte>& message : from_each) {
        if (message.empty()) {
            all.emplace_back();
        } else {
            all.emplace_back(values_in(message));
        }
    }
    return all;
}

}  // namespace vocabpipe
