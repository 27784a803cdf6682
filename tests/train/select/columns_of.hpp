// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/files/npy/header.hpp"
#include "src/select/files/tensor_input.hpp"
#include "src/select/files/tensor_output.hpp"
#include "tests/train/data/temp_folder.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Columns of `samples` samples of `seq_length` tokens, by name.
struct Columns {
    int64_t samples = 0, seq_length = 0;
    std::map<std::string, std::vector<float>> values;
    /// (samples, seq_length, k) each; k entries of every token.
    std::map<std::string, std::vector<float>> lists{};
    std::map<std::string, std::vector<int32_t>> ids{};

    /// k of a list.
    [[nodiscard]] int64_t entries(size_t numbers) const {
        return static_cast<int64_t>(numbers) / (samples * seq_length);
    }
    /// One number for all.
    void fill(const std::string& name, float value) {
        values[name].assign(static_cast<size_t>(samples * seq_length), value);
    }
    /// A .safetensors file of them.
    void write(const std::string& path) const {
        std::vector<StoredTensor> tensors;
        for (const auto& [name, numbers] : values) {
            tensors.push_back(
                {.name = name, .type = StoredType::F32, .shape = {samples, seq_length}});
        }
        const auto add_list = [&](const std::string& name, StoredType type, size_t numbers) {
            tensors.push_back(
                {.name = name, .type = type, .shape = {samples, seq_length, entries(numbers)}});
        };
        for (const auto& [name, numbers] : lists) add_list(name, StoredType::F32, numbers.size());
        for (const auto& [name, numbers] : ids) add_list(name, StoredType::I32, numbers.size());
        World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& world) {
            TensorOutput file(world, path, tensors, {});
            for (const auto& [name, numbers] : values) {
                file.write(name, 0, std::span<const float>(numbers));
            }
            for (const auto& [name, numbers] : lists) {
                file.write(name, 0, std::span<const float>(numbers));
            }
            for (const auto& [name, numbers] : ids) {
                file.write(name, 0, std::span<const int32_t>(numbers));
            }
            file.publish();
        });
    }
    /// A .npy file of some of them.
    void write_npy(const std::string& path, const std::vector<std::string>& names) const {
        std::string bytes = npy_header(NpyType::f4, {std::ssize(names), samples, seq_length});
        for (const std::string& name : names) {
            const std::vector<float>& numbers = values.at(name);
            bytes.append(reinterpret_cast<const char*>(numbers.data()),
                         numbers.size() * sizeof(float));
        }
        write_file(path, bytes);
    }
};

/// The log-probabilities of a file of vocabpipe score, as old_log_probs.
inline Columns columns_of_score(const std::string& path) {
    const TensorInput file(path, {"vocabpipe records 1"});
    const StoredTensor& tensor = file.at("logprob", StoredType::F32, 2);
    Columns columns{.samples = tensor.shape[0], .seq_length = tensor.shape[1], .values = {}};
    columns.fill("old_log_probs", 0);
    file.read(tensor, 0, std::span(columns.values["old_log_probs"]));
    return columns;
}

}  // namespace vocabpipe::testing
