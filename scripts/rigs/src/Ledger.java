// Ledger PORT ONE: a thread per connection; posting waits 1 ms for a voucher. ONE=1: inside a synchronized method
import java.io.*;
import java.net.*;

public class Ledger {
    static long total;

    static synchronized long post(int n) throws Exception { return settle(n); }

    static long settle(int n) throws Exception {
        Thread.sleep(1);
        return total += n;
    }

    static void serve(Socket s, boolean one) {
        try (s) {
            s.setTcpNoDelay(true);
            InputStream in = s.getInputStream();
            OutputStream out = s.getOutputStream();
            byte[] line = new byte[512];
            while (in.read(line) > 0) out.write(((one ? post(1) : settle(1)) + "\n").getBytes());
        } catch (Exception e) { }
    }

    public static void main(String[] a) throws Exception {
        ServerSocket l = new ServerSocket(Integer.parseInt(a[0]), 64, InetAddress.getByName("127.0.0.1"));
        boolean one = a[1].equals("1");
        System.out.println("ready");
        for (int i = 0;; i++) {
            Socket s = l.accept();
            new Thread(() -> serve(s, one), "till-" + i).start();
        }
    }
}
