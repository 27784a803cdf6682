// SPDX-License-Identifier: Apache-2.0
#include "src/train/score/score_file.hpp"

#include "src/select/files/npy/header.hpp"
#include "vocabpipe/error.hpp"

#include <utility>
#include <vector>

namespace vocabpipe {

void check_score_file_name(const std::string& path, const TokenRecords& records) {
    if (path.ends_with(".safetensors")) return;
    if (path.ends_with(".npy")) {
        if (!records.has(TokenRecord::top_logprobs)) return;
        throw UsageError("--output " + path +
                         ": a .npy file holds one kind of numbers, but lists of tokens have ids "
                         "as well; name a .safetensors file, or leave out --top-logprobs");
    }
    throw UsageError("--output " + path +
                     ": must end in .npy or .safetensors, which names the format");
}

std::unique_ptr<TensorOutput> open_score_file(Communicator& world, const std::string& path,
                                              const TokenRecords& records, int64_t samples,
                                              int64_t seq_length) {
    check_score_file_name(path, records);
    std::vector<StoredTensor> tensors;
    for (const TokenRecord record : records.list()) {
        if (record == TokenRecord::top_logprobs) {
            const std::vector<int64_t> shape{samples, seq_length, records.best_count()};
            tensors.push_back(
                {.name = std::string(to_string(record)), .type = StoredType::F32, .shape = shape});
            tensors.push_back({.name = kTopIds, .type = StoredType::I32, .shape = shape});
            continue;
        }
        tensors.push_back({.name = std::string(to_string(record)),
                           .type = StoredType::F32,
                           .shape = {samples, seq_length}});
    }
    if (!path.ends_with(".npy")) {
        return std::make_unique<TensorOutput>(
            world, path, std::move(tensors),
            std::map<std::string, std::string>{{"format", "vocabpipe records 1"}});
    }
    std::vector<int64_t> shape{samples, seq_length};
    if (records.size() > 1) shape.insert(shape.begin(), records.size());
    const std::string header = npy_header(NpyType::f4, shape);
    uint64_t next = header.size();
    for (StoredTensor& tensor : tensors) {
        tensor.begin = next;
        next += static_cast<uint64_t>(samples * seq_length) * sizeof(float);
        tensor.end = next;
    }
    return std::make_unique<TensorOutput>(world, path, header, tensors);
}

}  // namespace vocabpipe
