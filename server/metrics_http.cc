#include "server/metrics_http.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/metrics.h"
#include "server/options.h"

namespace serval {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

constexpr auto kIdleTimeout = std::chrono::seconds(30);
constexpr size_t kMaxRequestBytes = 16 << 10;

void Fill(Response& response, http::status status, const char* type, std::string body) {
  response.result(status);
  response.set(http::field::content_type, type);
  response.body() = std::move(body);
}

void FillJson(Response& response, http::status status, const nlohmann::ordered_json& json) {
  Fill(response, status, "application/json", json.dump() + "\n");
}

void Route(const Request& request, ServerState& state, Response& response) {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    response.set(http::field::allow, "GET, HEAD");
    return FillJson(response, http::status::method_not_allowed,
                    {{"error", "only GET and HEAD are answered here"}});
  }
  const std::string target(request.target().substr(0, request.target().find('?')));
  if (target == "/metrics") {
    return Fill(response, http::status::ok, "text/plain; version=0.0.4; charset=utf-8",
                MetricsText(state));
  }
  if (target == "/health") {
    const bool serving = state.phase() == Phase::kServing;
    return FillJson(response, serving ? http::status::ok : http::status::service_unavailable,
                    {{"status", Name(state.phase())}});
  }
  if (target == "/version") {
    return FillJson(response, http::status::ok, {{"version", kServalVersion}});
  }
  FillJson(response, http::status::not_found,
           {{"error", "no such path; there are /metrics, /health and /version"}});
}

// One connection; it lives in the handlers that wait for it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, ServerState* state) : stream_(std::move(socket)), state_(state) {}

  void Read() {
    parser_.emplace();
    parser_->body_limit(kMaxRequestBytes);
    parser_->header_limit(kMaxRequestBytes);
    stream_.expires_after(kIdleTimeout);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](beast::error_code error, size_t) {
                       if (error) return self->Close();
                       self->Write();
                     });
  }

 private:
  void Write() {
    const Request request = parser_->release();
    response_ = Response();
    response_.version(request.version());
    response_.keep_alive(request.keep_alive());
    response_.set(http::field::server, "serval");
    Route(request, *state_, response_);
    response_.prepare_payload();  // the length of the body, which HEAD announces but does not send
    if (request.method() == http::verb::head) response_.body().clear();
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code error, size_t) {
                        if (error || !self->response_.keep_alive()) return self->Close();
                        self->Read();
                      });
  }
  void Close() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  Response response_;
  ServerState* state_;
};

class BeastServer : public MetricsHttp {
 public:
  explicit BeastServer(ServerState* state) : state_(state), acceptor_(io_), retry_(io_) {}
  ~BeastServer() override {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Open(const std::string& host, int port) {
    beast::error_code error;
    const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
    if (error) {
      return absl::InvalidArgumentError(
          absl::StrCat("--host ", host, ": not an address; allowed: such as 127.0.0.1 or 0.0.0.0"));
    }
    const tcp::endpoint endpoint(address, static_cast<uint16_t>(port));
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat("--port ", port, ": cannot listen on ", host, " (",
                                                 error.message(),
                                                 "); choose another port, or 0 for none"));
    }
    Accept();
    thread_ = std::thread([this] { io_.run(); });
    return absl::OkStatus();
  }
  int port() const override { return acceptor_.local_endpoint().port(); }

 private:
  void Accept() {
    acceptor_.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (!error) {
        std::make_shared<Connection>(std::move(socket), state_)->Read();
        return Accept();
      }
      // Out of file descriptors, for one: waiting is better than trying again at once.
      retry_.expires_after(std::chrono::milliseconds(100));
      retry_.async_wait([this](beast::error_code stopped) {
        if (!stopped) Accept();
      });
    });
  }

  ServerState* state_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsHttp>> MetricsHttp::Start(const std::string& host, int port,
                                                                ServerState* state) {
  auto server = std::make_unique<BeastServer>(state);
  if (absl::Status status = server->Open(host, port); !status.ok()) return status;
  return server;
}

}  // namespace serval
