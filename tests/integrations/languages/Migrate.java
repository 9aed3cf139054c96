import org.flywaydb.core.Flyway;

/** Runs Flyway over a folder of migrations; prints how many it applied. */
public class Migrate {
    public static void main(String[] args) {
        var done = Flyway.configure()
            .dataSource(args[0], null, null)
            .locations("filesystem:" + args[1])
            .baselineOnMigrate(true)
            .load()
            .migrate();
        System.out.println(done.migrationsExecuted);
    }
}
