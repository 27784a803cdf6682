// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/convert_checkpoint.hpp"

#include "src/model/blocks/adapter.hpp"
#include "src/model/config_json/lora_keys.hpp"
#include "src/model/parameters.hpp"
#include "src/support/output_file.hpp"
#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "src/train/checkpoint/adapter_product.hpp"
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
#include <optional>
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

/// The original config with another type and without adapters: ModelConfig does not know all keys.
std::string config_of_type(const std::string& text, DType dtype) {
    auto json = nlohmann::ordered_json::parse(text);
    const char* const name = dtype == DType::bf16 ? "bfloat16" : "float32";
    json[json.contains("dtype") ? "dtype" : "torch_dtype"] = name;
    if (json.contains("dtype")) json.erase("torch_dtype");
    json.erase(kLoraKey);
    return json.dump(2) + "\n";
}

/// Elements of a stored tensor as another type, `product` added. `first`: the number of the first.
void convert_elements(StoredType from, std::span<const std::byte> in, StoredType to,
                      const AdapterProduct* product, int64_t first, std::vector<std::byte>& out) {
    std::vector<float> values(in.size() / item_size(from));
    with_elements(from, in.data(), [&](const auto& element) {
        for (size_t i = 0; i < values.size(); ++i) values[i] = element(static_cast<int64_t>(i));
    });
    if (product != nullptr) product->add(first, values);
    out.resize(values.size() * item_size(to));
    for (size_t i = 0; i < values.size(); ++i) {
        if (to == StoredType::F32) {
            std::memcpy(out.data() + i * 4, &values[i], sizeof(float));
        } else {
            const kernels::Bf16 half = kernels::to_bf16(values[i]);
            std::memcpy(out.data() + i * 2, &half, sizeof half);
        }
    }
}

/// The tensors to be written, in the type of `config`.
std::vector<StoredTensor> written_tensors(const ModelConfig& config, bool adapters) {
    std::vector<StoredTensor> tensors = model_file_tensors(config);
    std::erase_if(tensors, [&](const StoredTensor& t) {
        return t.name.starts_with(kAdapterPrefix) != adapters;
    });
    return tensors;
}

WeightFiles files_of(const std::vector<StoredTensor>& tensors, const ConvertOptions& options) {
    if (!options.adapter_only) return plan_weight_files(tensors, options.max_shard_bytes);
    WeightFiles files = plan_weight_files(tensors, UINT64_MAX);
    files.names = {std::string(kAdapterFile)};
    return files;
}

/// Writes a tensor, with its adapter where weights have one.
void write_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor,
                  const ConvertOptions& options, SharedOutputFile& file) {
    const ModelConfig& config = checkpoint.config();
    const std::optional<AdapterProduct> product =
        adapter_product(checkpoint.named_weights(), tensor.name, config.lora.scale(),
                        tensor_names(config).transposed);
    const FoundTensor& source = checkpoint.weight(tensor.name);
    const StoredType type = source.tensor->type;
    const bool same = type == tensor.type && !product;
    const InputFile file_in = source.file->open();
    const uint64_t piece = kPieceElements * item_size(type);
    uint64_t written = tensor.begin;
    int64_t elements = 0;
    std::vector<std::byte> in, out;
    for (uint64_t at = source.tensor->begin; at < source.tensor->end; at += in.size()) {
        if (options.poll) options.poll();
        in.resize(std::min(piece, source.tensor->end - at));
        file_in.read(at, in);
        if (!same) {
            convert_elements(type, in, tensor.type, product ? &*product : nullptr, elements, out);
        }
        const std::vector<std::byte>& bytes = same ? in : out;
        file.write_at(written, bytes);
        written += bytes.size();
        elements += static_cast<int64_t>(in.size() / item_size(type));
    }
}

/// What transformers keeps next to the weights.
void copy_beside(const Checkpoint& checkpoint, const NewFolder& folder) {
    std::vector<std::string_view> beside(kBeside.begin(), kBeside.end());
    beside.insert(beside.end(), kTokenizerFiles.begin(), kTokenizerFiles.end());
    for (const std::string_view name : beside) {
        const std::string path = checkpoint.folder() + "/" + std::string(name);
        std::error_code ignored;
        if (fs::is_regular_file(path, ignored)) {
            write_new_file(folder.file(name), InputFile(path).text());
        }
    }
}

}  // namespace

ConvertReport convert_checkpoint(const std::string& from, const std::string& to,
                                 const ConvertOptions& options) {
    CheckpointSource source = find_checkpoint(from, /*weights_only=*/true);
    source.adapter = options.adapter;
    const Checkpoint checkpoint(source);
    if (options.adapter_only && checkpoint.config().lora.rank == 0) {
        throw UsageError("--adapter-only: " + source.folder +
                         " has no adapters; leave out the flag");
    }
    NewFolder folder(to);
    checkpoint.verify(options.poll);

    ModelConfig config = checkpoint.config();
    // Only tensors of the model count, not buffers of old files.
    config.dtype = DType::bf16;
    const bool all_bf16 =
        std::ranges::all_of(written_tensors(config, options.adapter_only), [&](const auto& t) {
            return t.type != StoredType::BF16 ||
                   checkpoint.weight(t.name).tensor->type == StoredType::BF16;
        });
    config.dtype = options.dtype.value_or(all_bf16 ? DType::bf16 : DType::fp32);
    const std::vector<StoredTensor> tensors = written_tensors(config, options.adapter_only);
    const WeightFiles files = files_of(tensors, options);
    ConvertReport report{
        .weight_files = files.names.size(), .tensors = tensors.size(), .dtype = config.dtype};
    for (size_t i = 0; i < files.plans.size(); ++i) {
        const SafetensorsPlan& plan = files.plans[i];
        SharedOutputFile file =
            SharedOutputFile::create(folder.file(files.names[i]), plan.file_bytes());
        file.write_at(0, std::as_bytes(std::span(plan.header())));
        for (const StoredTensor& tensor : plan.tensors()) {
            write_tensor(checkpoint, tensor, options, file);
        }
        file.sync();
        report.bytes += plan.file_bytes();
    }
    if (!files.index.empty()) write_new_file(folder.file(kModelIndex), files.index);
    if (options.adapter_only) {
        write_new_file(folder.file(kAdapterConfigFile), print_adapter_config(config));
    } else {
        copy_beside(checkpoint, folder);
        write_new_file(folder.file(kConfigFile),
                       config_of_type(InputFile(checkpoint.config_path()).text(), config.dtype));
    }
    folder.publish();
    return report;
}

}  // namespace vocabpipe
