import java.io.IOException;
import java.nio.charset.StandardCharsets;
import one.nio.http.HttpServer;
import one.nio.http.HttpServerConfig;
import one.nio.http.HttpSession;
import one.nio.http.Param;
import one.nio.http.Path;
import one.nio.http.Request;
import one.nio.http.Response;
import one.nio.server.AcceptorConfig;
import org.rocksdb.BlockBasedTableConfig;
import org.rocksdb.BloomFilter;
import org.rocksdb.LRUCache;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksDBException;
import org.rocksdb.WriteOptions;

/** Values by key over HTTP, as the service has them, straight on RocksDB: no queue, no bound, no sync. */
public final class Server extends HttpServer {
    private final RocksDB store;
    private final WriteOptions unsynced = new WriteOptions().setSync(false);

    private Server(HttpServerConfig config, RocksDB store) throws IOException {
        super(config);
        this.store = store;
    }

    /** What a selector's thread is given it does to the end: the cheapest that one-nio can. */
    @Path("/v0/entity")
    public Response entity(@Param(value = "id", required = true) String id, Request request) throws RocksDBException {
        byte[] key = id.getBytes(StandardCharsets.UTF_8);
        switch (request.getMethod()) {
            case Request.METHOD_GET:
                byte[] value = store.get(key);
                return value == null ? new Response(Response.NOT_FOUND, Response.EMPTY) : Response.ok(value);
            case Request.METHOD_PUT:
                store.put(unsynced, key, request.getBody());
                return new Response(Response.CREATED, Response.EMPTY);
            case Request.METHOD_DELETE:
                store.delete(unsynced, key);
                return new Response(Response.ACCEPTED, Response.EMPTY);
            default:
                return new Response(Response.METHOD_NOT_ALLOWED, Response.EMPTY);
        }
    }

    @Override
    public void handleDefault(Request request, HttpSession session) throws IOException {
        session.sendResponse(new Response(Response.NOT_FOUND, Response.EMPTY));
    }

    /** Takes the port and the folder of the store, which is closed when the process is told to end. */
    public static void main(String[] args) throws Exception {
        RocksDB.loadLibrary();
        var table = new BlockBasedTableConfig().setBlockCache(new LRUCache(256 << 20)).setFilterPolicy(new BloomFilter(10));
        var store = RocksDB.open(new Options().setCreateIfMissing(true).setTableFormatConfig(table), args[1]);
        var acceptor = new AcceptorConfig();
        acceptor.address = "127.0.0.1";
        acceptor.port = Integer.parseInt(args[0]);
        var config = new HttpServerConfig();
        config.acceptors = new AcceptorConfig[] {acceptor};
        var server = new Server(config, store);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            server.stop();
            store.close();
        }));
        server.start();
    }
}
