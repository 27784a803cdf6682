// SPDX-License-Identifier: Apache-2.0
// safetensors files byte by byte, apart from the writer of the program.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Length, JSON, data.
inline std::string raw_safetensors(const std::string& json, const std::string& data) {
    const uint64_t length = json.size();
    std::string file(8, '\0');
    std::memcpy(file.data(), &length, 8);
    return file + json + data;
}

/// A tensor of given bytes.
struct RawTensor {
    std::string name, dtype, shape, bytes;
};

inline std::string raw_safetensors(const std::vector<RawTensor>& tensors) {
    std::string json = "{";
    std::string data;
    for (const RawTensor& t : tensors) {
        const size_t begin = data.size();
        data += t.bytes;
        json += (begin == 0 ? "\"" : ", \"") + t.name + "\": {\"dtype\": \"" + t.dtype +
                "\", \"shape\": " + t.shape + ", \"data_offsets\": [" + std::to_string(begin) +
                ", " + std::to_string(data.size()) + "]}";
    }
    return raw_safetensors(json + "}", data);
}

inline std::string float_bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace vocabpipe::testing
