// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/convert_checkpoint.hpp"

#include "src/support/output_file.hpp"
#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/load_checkpoint.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/stored_elements.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace vocabpipe {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kPieceElements = 1 << 20;

/// Files that transformers keeps next to the weights, beside those of kTokenizerFiles.
constexpr std::array<std::string_view, 6> kBeside{
    "generation_config.json", "added_tokens.json",       "vocab.json", "merges.txt",
    "chat_template.json",     "preprocessor_config.json"};

/// A folder that gets its name when it is complete; otherwise it is removed.
class NewFolder {
public:
    explicit NewFolder(const std::string& path) : path_(fs::path(path).lexically_normal()) {
        if (!path_.has_filename()) path_ = path_.parent_path();  // "a/b/"
        refuse_existing();
        partial_ = path_.parent_path() / ("." + path_.filename().string() + ".partial");
        if (::mkdir(partial_.c_str(), 0777) == 0) return;
        if (errno == EEXIST) {
            throw UsageError(partial_.string() +
                             ": exists; another conversion is writing it or was killed; wait for "
                             "it or remove the folder");
        }
        throw_output_error(partial_.string(), "cannot create", errno);
    }
    ~NewFolder() {
        std::error_code ignored;
        if (!published_) fs::remove_all(partial_, ignored);
    }
    NewFolder(const NewFolder&) = delete;
    NewFolder& operator=(const NewFolder&) = delete;

    [[nodiscard]] std::string file(std::string_view name) const {
        return (partial_ / name).string();
    }
    /// Call when all files are durable.
    void publish() {
        sync_folder_of(file("config.json"));
        // A plain rename would replace an empty folder that was made meanwhile.
        int result =
            ::renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
        if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {  // the file system cannot
            refuse_existing();
            result = std::rename(partial_.c_str(), path_.c_str());
        }
        if (result != 0) throw_output_error(path_.string(), "cannot create", errno);
        published_ = true;
        sync_folder_of(path_.string());
    }

private:
    void refuse_existing() const {
        std::error_code ignored;
        if (!fs::exists(fs::symlink_status(path_, ignored))) return;
        throw UsageError(path_.string() +
                         ": already exists and is never replaced; choose a new folder");
    }

    fs::path path_, partial_;
    bool published_ = false;
};

/// The original config with another type: ModelConfig does not know the tokens that end a text.
std::string config_of_type(const std::string& text, DType dtype) {
    auto json = nlohmann::ordered_json::parse(text);
    const char* const name = dtype == DType::bf16 ? "bfloat16" : "float32";
    json[json.contains("dtype") ? "dtype" : "torch_dtype"] = name;
    if (json.contains("dtype")) json.erase("torch_dtype");
    return json.dump(2) + "\n";
}

/// Elements of a stored tensor, as another type.
void convert_elements(StoredType from, std::span<const std::byte> in, StoredType to,
                      std::vector<std::byte>& out) {
    const auto count = static_cast<int64_t>(in.size() / item_size(from));
    out.resize(static_cast<size_t>(count) * item_size(to));
    with_elements(from, in.data(), [&](const auto& element) {
        for (int64_t i = 0; i < count; ++i) {
            const float value = element(i);
            if (to == StoredType::F32) {
                std::memcpy(out.data() + i * 4, &value, sizeof value);
            } else {
                const kernels::Bf16 half = kernels::to_bf16(value);
                std::memcpy(out.data() + i * 2, &half, sizeof half);
            }
        }
    });
}

}  // namespace

ConvertReport convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options) {
    const Checkpoint checkpoint(find_checkpoint(from, /*weights_only=*/true));
    NewFolder folder(to);
    checkpoint.verify(options.poll);

    ModelConfig config = checkpoint.config();
    // Only tensors of the model count, not buffers of old files.
    config.dtype = DType::bf16;
    const bool all_bf16 = std::ranges::all_of(model_file_tensors(config), [&](const auto& t) {
        return t.type != StoredType::BF16 ||
               checkpoint.weight(t.name).tensor->type == StoredType::BF16;
    });
    config.dtype = options.dtype.value_or(all_bf16 ? DType::bf16 : DType::fp32);
    const std::vector<StoredTensor> tensors = model_file_tensors(config);
    const WeightFiles files = plan_weight_files(tensors, options.max_shard_bytes);
    ConvertReport report{
        .weight_files = files.names.size(), .tensors = tensors.size(), .dtype = config.dtype};
    std::vector<std::byte> in, out;
    for (size_t i = 0; i < files.plans.size(); ++i) {
        const SafetensorsPlan& plan = files.plans[i];
        SharedOutputFile file =
            SharedOutputFile::create(folder.file(files.names[i]), plan.file_bytes());
        file.write_at(0, std::as_bytes(std::span(plan.header())));
        for (const StoredTensor& tensor : plan.tensors()) {
            const FoundTensor& source = checkpoint.weight(tensor.name);
            const StoredType type = source.tensor->type;
            const InputFile file_in = source.file->open();
            const uint64_t piece = kPieceElements * item_size(type);
            uint64_t written = tensor.begin;
            for (uint64_t at = source.tensor->begin; at < source.tensor->end; at += in.size()) {
                if (options.poll) options.poll();
                in.resize(std::min(piece, source.tensor->end - at));
                file_in.read(at, in);
                if (type != tensor.type) convert_elements(type, in, tensor.type, out);
                const std::vector<std::byte>& bytes = type == tensor.type ? in : out;
                file.write_at(written, bytes);
                written += bytes.size();
            }
        }
        file.sync();
        report.bytes += plan.file_bytes();
    }
    if (!files.index.empty()) write_new_file(folder.file(kModelIndex), files.index);
    std::vector<std::string_view> beside(kBeside.begin(), kBeside.end());
    beside.insert(beside.end(), kTokenizerFiles.begin(), kTokenizerFiles.end());
    for (const std::string_view name : beside) {
        const std::string path = checkpoint.folder() + "/" + std::string(name);
        std::error_code ignored;
        if (fs::is_regular_file(path, ignored)) {
            write_new_file(folder.file(name), InputFile(path).text());
        }
    }
    write_new_file(folder.file(kConfigFile),
                   config_of_type(InputFile(checkpoint.config_path()).text(), config.dtype));
    folder.publish();
    return report;
}

}  // namespace vocabpipe
